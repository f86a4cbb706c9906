"""One question asked and everything about it that a row keeps; the suites that ask share it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from benchmarks.harness.suite import Bench
from pipeline.ask import ask
from pipeline.dispatch import Dispatcher
from pipeline.documents.document import Document, Span
from pipeline.errors import LongfoldError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Evidence, Finding
from pipeline.llm.model import Call, CallFailed, Completion, Outcome, Usage
from pipeline.run.events import CallEnded, ChunkMapped, Event, Planned, Provisional
from pipeline.run.request import Request
from pipeline.run.strategy import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """An answer in which no call failed."""

    answer: Answer
    findings: tuple[Finding, ...]
    usage: Usage
    """Of all calls, remembered ones included: an answer's own usage leaves those out."""
    document_tokens: int
    seconds: float | None
    """None if a call was remembered or no engine answered: the time then says nothing."""
    provisional_s: float | None
    """Until the first provisional answer; None if there was none."""

    def row(self) -> dict[str, object]:
        """What every suite keeps."""
        return {
            "document_tokens": self.document_tokens,
            "chunks": self.answer.coverage.chunks,
            "extracted": self.answer.coverage.chunks_extracted,
            "calls": self.usage.calls,
            "prompt_tokens": self.usage.prompt_tokens,
            "cached_tokens": self.usage.cached_tokens,
            "output_tokens": self.usage.output_tokens,
            "seconds": self.seconds,
        }


def quoted_spans(evidence: Iterable[Evidence]) -> list[Span]:
    """Of the quotes that were located."""
    return [quote.span for quote in evidence if quote.span is not None]


async def measure_run(bench: Bench, document: Document, request: Request, resources: Resources) -> MeasuredRun | str:
    """Ask. If the run or any of its calls failed the result is the reason: it is unscored, never wrong."""
    heard = _Heard()
    tally = _Tally(resources.dispatcher)
    try:
        answer = await ask(document, request, replace(resources, emit=heard, dispatcher=tally))
    except LongfoldError as error:
        return f"{type(error).__name__}: {error}"
    if tally.failed:
        return f"{len(tally.failed)} calls failed, the first: {tally.failed[0].message}"
    timed = bench.model.opened is not None and not heard.remembered
    return MeasuredRun(
        answer=answer,
        findings=tuple(heard.findings),
        usage=tally.usage,
        document_tokens=heard.document_tokens,
        seconds=round(answer.total_seconds, 1) if timed else None,
        provisional_s=heard.provisional_s,
    )


class _Heard:
    """The part of a run's events that a score needs."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.remembered = False
        self.document_tokens = 0
        self.provisional_s: float | None = None
        self._started_s = time.monotonic()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Planned):
            self.document_tokens = event.plan.document_tokens
        elif isinstance(event, ChunkMapped) and event.finding is not None:
            self.findings.append(event.finding)
        elif isinstance(event, Provisional) and self.provisional_s is None:
            self.provisional_s = round(time.monotonic() - self._started_s, 2)
        elif isinstance(event, CallEnded) and event.from_journal:
            self.remembered = True


class _Tally:
    """Counts what all calls took and which failed, wherever in the run they are made."""

    def __init__(self, inner: Dispatcher) -> None:
        self._inner = inner
        self.usage = Usage()
        self.failed: list[CallFailed] = []

    async def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        async for outcome in self._inner.complete(calls):
            if isinstance(outcome, Completion):
                self.usage += outcome.usage
            else:
                self.failed.append(outcome)
            yield outcome
