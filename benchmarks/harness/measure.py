"""One question asked and everything about it that a row keeps; the suites that ask share it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from benchmarks.harness.suite import Bench
from pipeline.documents.document import Document, Span
from pipeline.errors import LongfoldError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Evidence, Finding
from pipeline.front_door import ask
from pipeline.llm.model import Usage
from pipeline.run.request import Request
from pipeline.run.state import RunState
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
    state = RunState()
    try:
        answer = await ask(document, request, replace(resources, emit=state.apply))
    except LongfoldError as error:
        return f"{type(error).__name__}: {error}"
    if state.failures:
        return f"{len(state.failures)} calls failed, the first: {state.failures[0].message}"
    stages = state.stages.values()
    timed = bench.model.opened is not None and not any(at.from_journal for at in stages)
    return MeasuredRun(
        answer=answer,
        findings=tuple(state.findings),
        usage=sum((at.completion_usage for at in stages), Usage()),
        document_tokens=state.plan.document_tokens if state.plan else 0,
        seconds=round(answer.total_seconds, 1) if timed else None,
        provisional_s=None if state.first_answer_s is None else round(state.first_answer_s, 2),
    )
