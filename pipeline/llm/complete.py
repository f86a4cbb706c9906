"""Complete a call and read its output; what cannot be read is asked for again, a bounded number of times.

Reading refuses an output with MalformedOutput; one that is refused to the end is a failure like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from pipeline.errors import MalformedOutput
from pipeline.llm.model import Call, CallFailed, Completion, Dispatcher

Read = TypeVar("Read")
Result = TypeVar("Result")

REPAIRS = 1
REPAIR_TEMPERATURE = 0.5
"""A greedy model would write the same again; the seed is the attempt's number, so a resumed run repeats exactly."""


async def complete_parsed(
    call: Call, read: Callable[[Completion], Read], dispatcher: Dispatcher, *, repairs: int = REPAIRS
) -> Read | CallFailed:
    """What `read` makes of the call's completion, else of a later attempt's; or the failure."""
    for attempt in range(repairs + 1):
        if attempt:
            call = replace(call, sampling=replace(call.sampling, temperature=REPAIR_TEMPERATURE, seed=attempt))
        outcome = await dispatcher.complete(call)
        if isinstance(outcome, CallFailed):
            return outcome
        try:
            return read(outcome)
        except MalformedOutput as error:
            refused = CallFailed(error=type(error).__name__, message=str(error), attempts=attempt + 1)
    return refused


async def at_once(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run side by side; the results in their order. If one raises, the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]


def yes_score(completion: Completion) -> float:
    """log P(Yes) − log P(No), in nats."""
    yes, no = completion.choice_logprobs
    return yes - no
