"""Calls to a model in this process, a bounded number at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pipeline.dispatch.admission import AdmissionQueue
from pipeline.dispatch.retry import RetryPolicy, as_failure, with_retries
from pipeline.errors import CallTimedOut, InternalError, LongfoldError
from pipeline.llm.model import Call, Model, Outcome


class InlineDispatcher:
    """A `Dispatcher` without a cluster."""

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
        self._max_calls = max_calls
        self._admission = AdmissionQueue(slots=max_calls, tokens=max_tokens)
        self._call_deadline_s = call_deadline_s
        self._retry = retry or RetryPolicy()
        self._sleep, self._clock = sleep, clock

    @property
    def window(self) -> int:
        return self._max_calls

    async def complete(self, call: Call) -> Outcome:
        async with self._admission.slot(priority=call.priority, tokens=call.cost_tokens()):
            return await with_retries(lambda: self._attempt(call), self._retry, sleep=self._sleep, clock=self._clock)

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
