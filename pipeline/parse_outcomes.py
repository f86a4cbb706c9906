"""Calls whose output is parsed; what cannot be parsed is asked for once more, and is then a failure like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pipeline.dispatch import Dispatcher
from pipeline.errors import MalformedOutput
from pipeline.model import Call, CallFailed, Completion, Outcome

Parsed = TypeVar("Parsed")


def warmer(call: Call) -> Call:
    """The same question drawn otherwise: greedy decoding would give the same output again."""
    return replace(call, sampling=replace(call.sampling, temperature=0.5, seed=1))


async def complete_parsed(
    calls: Sequence[Call], parse: Callable[[int, Completion], Parsed], dispatcher: Dispatcher
) -> AsyncIterator[Parsed | CallFailed]:
    """Yield what `parse` makes of each call's completion, in the order of the calls.

    `parse` is given the call's position too, and raises MalformedOutput; the call is then made once more, warmer.
    """
    position = 0
    async for outcome in dispatcher.complete(calls):
        parsed = _parsed(position, outcome, parse)
        if isinstance(parsed, CallFailed) and parsed.error == MalformedOutput.__name__:
            [again] = [o async for o in dispatcher.complete([warmer(calls[position])])]
            parsed = _parsed(position, again, parse)
        yield parsed
        position += 1


async def complete_one(
    call: Call, parse: Callable[[Completion], Parsed], dispatcher: Dispatcher
) -> Parsed | CallFailed:
    """One call, as `complete_parsed` makes it."""
    [parsed] = [p async for p in complete_parsed([call], lambda _, completion: parse(completion), dispatcher)]
    return parsed


def _parsed(position: int, outcome: Outcome, parse: Callable[[int, Completion], Parsed]) -> Parsed | CallFailed:
    if isinstance(outcome, CallFailed):
        return outcome
    try:
        return parse(position, outcome)
    except MalformedOutput as error:
        return CallFailed(error=type(error).__name__, message=str(error))
