"""Complete calls and read their outputs; one that cannot be read is asked for again, a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pipeline.dispatch import Dispatcher
from pipeline.errors import MalformedOutput
from pipeline.model import Call, CallFailed, Completion

Read = TypeVar("Read")

REPAIR_TEMPERATURE = 0.5
"""A greedy model would write the same again; the seed is the attempt's number, so a resumed run repeats exactly."""


async def complete_parsed(
    calls: Sequence[Call], read: Callable[[int, Completion], Read], dispatcher: Dispatcher, *, repairs: int
) -> list[Read | CallFailed]:
    """Return what `read` makes of each call's completion, or its failure, in the order of the calls.

    `read` gets the call's place and its completion, as soon as both are known, and refuses with MalformedOutput.
    """
    results: dict[int, Read | CallFailed] = {}
    pending = list(range(len(calls)))
    for attempt in range(repairs + 1):
        refused: list[int] = []
        places = iter(pending)
        async for outcome in dispatcher.complete([_attempt(calls[place], attempt) for place in pending]):
            place = next(places)
            if isinstance(outcome, CallFailed):
                results[place] = outcome
                continue
            try:
                results[place] = read(place, outcome)
            except MalformedOutput as error:
                results[place] = CallFailed(error=type(error).__name__, message=str(error), attempts=attempt + 1)
                refused.append(place)
        pending = refused
        if not pending:
            break
    return [results[place] for place in range(len(calls))]


async def complete_one(
    call: Call, read: Callable[[Completion], Read], dispatcher: Dispatcher, *, repairs: int
) -> Read | CallFailed:
    [result] = await complete_parsed([call], lambda _, completion: read(completion), dispatcher, repairs=repairs)
    return result


def _attempt(call: Call, attempt: int) -> Call:
    if attempt == 0:
        return call
    return replace(call, sampling=replace(call.sampling, temperature=REPAIR_TEMPERATURE, seed=attempt))
