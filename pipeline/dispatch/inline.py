"""Calls to a model in this process, a bounded number at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace

from pipeline.dispatch.admission import Deliver, Room, in_order
from pipeline.dispatch.retry import RetryPolicy, as_failure
from pipeline.errors import CallTimedOut, InternalError, LongfoldError
from pipeline.llm.model import Call, CallFailed, Model, Outcome


class InlineDispatcher:
    """A `Dispatcher` without a cluster. Concurrent `complete` share one bound."""

    def __init__(
        self,
        model: Model,
        *,
        max_calls: int = 64,
        max_tokens: int = 1_000_000,
        call_deadline_s: float = 3600.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._room = Room(places=max_calls, tokens=max_tokens)
        self._call_deadline_s = call_deadline_s
        self._retry = retry or RetryPolicy()
        self._sleep, self._clock = sleep, clock

    def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        async def feed(deliver: Deliver) -> None:
            async with asyncio.TaskGroup() as group:
                for index, call in enumerate(calls):
                    place = await self._room.enter(priority=call.priority, tokens=call.cost_tokens())
                    # Not in the task itself: cancelled before its first step, it would never leave.
                    group.create_task(self._one(index, call, deliver)).add_done_callback(place.leave)

        return in_order(feed)

    async def _one(self, index: int, call: Call, deliver: Deliver) -> None:
        deliver(index, await self._persist(call))

    async def _persist(self, call: Call) -> Outcome:
        attempts, failing_since = 0, 0.0
        while True:
            outcome = await self._attempt(call)
            attempts += 1
            if not isinstance(outcome, CallFailed):
                return outcome
            failing_since = failing_since if attempts > 1 else self._clock()
            failure = replace(outcome, attempts=attempts)
            wait_s = self._retry.wait_s(failure, failing_s=self._clock() - failing_since)
            if wait_s is None:
                return failure
            await self._sleep(wait_s)

    async def _attempt(self, call: Call) -> Outcome:
        try:
            async with asyncio.timeout(self._call_deadline_s):
                return await self._model.complete(call)
        except LongfoldError as error:
            return as_failure(error)
        except TimeoutError:
            return as_failure(CallTimedOut(f"The call did not end within {self._call_deadline_s:.0f} s."))
        except Exception as error:  # noqa: BLE001  a model that raises what it must not is our fault, and recorded
            return as_failure(InternalError(f"The model raised {type(error).__name__}: {error}"))
