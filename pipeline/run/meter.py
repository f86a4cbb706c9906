"""Counting what a run uses, and stopping it at its limits."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline.dispatch.admission import AdmissionQueue
from pipeline.llm.model import (
    BULK,
    LIMIT_REACHED,
    Call,
    CallFailed,
    Completion,
    Dispatcher,
    Outcome,
    Stage,
    Usage,
)
from pipeline.run.events import CallEnded, Event
from pipeline.run.request import Limits


class Meter:
    """A dispatcher that counts usage and time by stage, keeps the limits, and emits one event per outcome.

    Limits bind gate and map calls only: what the last stages need to conclude from what is known is always allowed.
    A call that a limit keeps back is `CallFailed("LimitReached")`; calls under way are let finish. As many gate and map
    calls are under way as the inner window says, so that a limit is looked at when a call can be sent.
    """

    def __init__(self, inner: Dispatcher, limits: Limits, emit: Callable[[Event], None]) -> None:
        self._inner = inner
        self._limits = limits
        self._emit = emit
        self._admission = AdmissionQueue(slots=inner.window)
        self._started_s = time.monotonic()
        self._calls_sent = 0
        self._tokens_sent = 0
        self._first_s: dict[Stage, float] = {}
        self._last_s: dict[Stage, float] = {}
        self.usage: dict[Stage, Usage] = {}
        self.stopped_by = ""

    @property
    def window(self) -> int:
        return self._inner.window

    @property
    def seconds(self) -> dict[Stage, float]:
        return {stage: last - self._first_s[stage] for stage, last in self._last_s.items()}

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    async def complete(self, call: Call) -> Outcome:
        async with self._admission.for_call(call):
            self._first_s.setdefault(call.stage, self.elapsed_s())
            if call.stage in BULK and self._is_stopped(call):
                reason = f"the limit on {self.stopped_by} was reached"
                outcome: Outcome = CallFailed(error=LIMIT_REACHED, message=reason, attempts=0)
            else:
                self._calls_sent += 1
                self._tokens_sent += call.cost_tokens()
                outcome = await self._inner.complete(call)
            self._record(call, outcome)
        return outcome

    def _is_stopped(self, call: Call) -> bool:
        limits = self._limits
        if self.stopped_by:
            return True
        if limits.calls is not None and self._calls_sent >= limits.calls:
            self.stopped_by = "calls"
        elif limits.tokens is not None and self._tokens_sent + call.cost_tokens() > limits.tokens:
            self.stopped_by = "tokens"
        elif limits.wall_time_s is not None and self.elapsed_s() >= limits.wall_time_s:
            self.stopped_by = "wall time"
        return bool(self.stopped_by)

    def _record(self, call: Call, outcome: Outcome) -> None:
        usage = _usage(outcome)
        self.usage[call.stage] = self.usage.get(call.stage, Usage()) + usage
        self._last_s[call.stage] = self.elapsed_s()
        self._emit(
            CallEnded(
                stage=call.stage,
                chunk_index=call.chunk_index,
                usage=usage,
                completion_usage=outcome.usage if isinstance(outcome, Completion) else Usage(),
                failed=outcome if isinstance(outcome, CallFailed) else None,
                from_journal=isinstance(outcome, Completion) and outcome.from_journal,
            )
        )


def _usage(outcome: Outcome) -> Usage:
    if isinstance(outcome, CallFailed):
        return Usage(calls=outcome.attempts)
    return Usage(journal_calls=1) if outcome.from_journal and not outcome.own else outcome.usage
