"""Counting what a run uses, and stopping it at its limits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from pipeline.llm.model import LIMIT_REACHED, Call, CallFailed, Completion, Dispatcher, Outcome, Stage, Usage
from pipeline.run.events import CallEnded, Event
from pipeline.run.request import Limits

_LIMITED = (Stage.GATE, Stage.MAP)


class Meter:
    """A dispatcher that counts usage and time by stage, keeps the limits, and emits one event per outcome.

    Limits bind gate and map calls only: what the last stages need to conclude from what is known is always allowed.
    A call that a limit keeps back is yielded as `CallFailed("LimitReached")`; calls under way are let finish.
    """

    def __init__(self, inner: Dispatcher, limits: Limits, emit: Callable[[Event], None]) -> None:
        self._inner = inner
        self._limits = limits
        self._emit = emit
        self._started_s = time.monotonic()
        self._calls_sent = 0
        self._tokens_sent = 0
        self._first_s: dict[Stage, float] = {}
        self._last_s: dict[Stage, float] = {}
        self.usage: dict[Stage, Usage] = {}
        self.stopped_by = ""

    @property
    def seconds(self) -> dict[Stage, float]:
        return {stage: last - self._first_s[stage] for stage, last in self._last_s.items()}

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    async def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        remaining = iter(calls)
        sent: deque[Call] = deque()
        kept_back: list[Call] = []
        async for outcome in self._inner.complete(self._admitted(remaining, sent, kept_back)):
            self._record(sent.popleft(), outcome)
            yield outcome
        for call in [*kept_back, *remaining]:
            outcome = CallFailed(error=LIMIT_REACHED, message=f"the limit on {self.stopped_by} was reached", attempts=0)
            self._record(call, outcome)
            yield outcome

    def _admitted(self, calls: Iterator[Call], sent: deque[Call], kept_back: list[Call]) -> Iterator[Call]:
        for call in calls:
            if not self._admit(call):
                kept_back.append(call)
                return
            sent.append(call)
            self._first_s.setdefault(call.stage, self.elapsed_s())
            yield call

    def _admit(self, call: Call) -> bool:
        if call.stage in _LIMITED and not self.stopped_by:
            limits = self._limits
            if limits.calls is not None and self._calls_sent >= limits.calls:
                self.stopped_by = "calls"
            elif limits.tokens is not None and self._tokens_sent + call.cost_tokens() > limits.tokens:
                self.stopped_by = "tokens"
            elif limits.wall_time_s is not None and self.elapsed_s() >= limits.wall_time_s:
                self.stopped_by = "wall time"
        if call.stage in _LIMITED and self.stopped_by:
            return False
        self._calls_sent += 1
        self._tokens_sent += call.cost_tokens()
        return True

    def _record(self, call: Call, outcome: Outcome) -> None:
        usage = _usage(outcome)
        self.usage[call.stage] = self.usage.get(call.stage, Usage()) + usage
        now = self.elapsed_s()
        self._first_s.setdefault(call.stage, now)
        self._last_s[call.stage] = now
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
