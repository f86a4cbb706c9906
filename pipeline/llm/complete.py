"""Complete calls and read their outputs; one that cannot be read is asked for again, a bounded number of times.

Reading refuses an output with MalformedOutput; one that is refused to the end is a failure like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pipeline.errors import MalformedOutput
from pipeline.llm.model import Call, CallFailed, Completion, Dispatcher, Outcome

Read = TypeVar("Read")

REPAIRS = 1
REPAIR_TEMPERATURE = 0.5
"""A greedy model would write the same again; the seed is the attempt's number, so a resumed run repeats exactly."""


async def complete_parsed(
    calls: Sequence[Call],
    read: Callable[[int, Completion], Read],
    dispatcher: Dispatcher,
    *,
    repairs: int = REPAIRS,
    told: Callable[[int, Read | CallFailed], None] = lambda _, __: None,
) -> list[Read | CallFailed]:
    """Return what `read` makes of each call's completion, or its failure, in the order of the calls.

    `read` gets the call's place too. `told` hears of each result as soon as it is known: in order, but for those that
    had to be asked for again, which nothing waits for.
    """
    results: dict[int, Read | CallFailed] = {}

    async def finish(place: int, outcome: Outcome) -> None:
        results[place] = await read_or_ask_again(
            calls[place], outcome, partial(read, place), dispatcher, repairs=repairs
        )
        told(place, results[place])

    async with asyncio.TaskGroup() as group:
        place = 0
        async for outcome in dispatcher.complete(calls):
            group.create_task(finish(place, outcome))
            place += 1
    return [results[place] for place in range(len(calls))]


async def complete_one(
    call: Call, read: Callable[[Completion], Read], dispatcher: Dispatcher, *, repairs: int = REPAIRS
) -> Read | CallFailed:
    return await read_or_ask_again(call, await complete(call, dispatcher), read, dispatcher, repairs=repairs)


async def read_or_ask_again(
    call: Call,
    outcome: Outcome,
    read: Callable[[Completion], Read],
    dispatcher: Dispatcher,
    *,
    repairs: int = REPAIRS,
) -> Read | CallFailed:
    """What `read` makes of the call's first outcome, else of a later attempt's."""
    for attempt in range(repairs + 1):
        if attempt:
            sampling = replace(call.sampling, temperature=REPAIR_TEMPERATURE, seed=attempt)
            outcome = await complete(replace(call, sampling=sampling), dispatcher)
        if isinstance(outcome, CallFailed):
            return outcome
        try:
            return read(outcome)
        except MalformedOutput as error:
            refused = CallFailed(error=type(error).__name__, message=str(error), attempts=attempt + 1)
    return refused


async def complete(call: Call, dispatcher: Dispatcher) -> Outcome:
    """The outcome of a single call."""
    [outcome] = [outcome async for outcome in dispatcher.complete([call])]
    return outcome


def yes_score(completion: Completion) -> float:
    """log P(Yes) − log P(No), in nats."""
    yes, no = completion.choice_logprobs
    return yes - no
