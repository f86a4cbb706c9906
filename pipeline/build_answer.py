"""What was concluded, put together with what the run knows of coverage, usage and failures."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.answer import Answer, Coverage
from pipeline.document import Span
from pipeline.meter import Meter
from pipeline.reduce_findings import Conclusion


def build_answer(
    conclusion: Conclusion,
    coverage: Coverage,
    meter: Meter,
    *,
    warnings: Sequence[str] = (),
    made_from: tuple[Span, ...] = (),
    provisional: bool = False,
) -> Answer:
    """Warnings come in this order: the conclusion's, chunks that failed, a limit that was reached, the strategy's."""
    told = [conclusion.warning] if conclusion.warning else []
    failed = [chunk for chunk in coverage.failed_chunks if chunk.error != "LimitReached"]
    if failed:
        told.append(f"{len(failed)} of {coverage.chunks} chunks could not be read: {failed[0].message}")
    if meter.stopped_by:
        told.append(f"Reading stopped at the limit on {meter.stopped_by}; {coverage.share:.0%} was read.")
    return Answer(
        text=conclusion.text,
        explanation=conclusion.explanation,
        found=bool(conclusion.text),
        confidence=conclusion.confidence,
        probability=conclusion.probability,
        evidence=conclusion.evidence,
        conflicts=conclusion.conflicts,
        coverage=coverage,
        made_from=made_from,
        usage=dict(meter.usage),
        seconds=meter.seconds,
        total_seconds=meter.elapsed_s(),
        provisional=provisional,
        stopped_by=meter.stopped_by,
        warnings=(*told, *warnings),
    )
