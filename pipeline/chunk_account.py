"""What became of each chunk, and the answer that says so, where a strategy may ask about a chunk several times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.answer import Answer, Coverage, FailedChunk
from pipeline.events import ChunkMapped, Event, Provisional
from pipeline.finding import Finding
from pipeline.meter import Meter
from pipeline.model import CallFailed, Stage
from pipeline.reduce_findings import Conclusion
from pipeline.split_document import Chunk

PROVISIONAL_PROBABILITY = 0.5
"""A first answer is shown when it is more likely right than not."""


@dataclass(slots=True, kw_only=True)
class ChunkAccount:
    """Each chunk ends as read, failed or unread, exactly once, however often it was asked about."""

    chunks: Sequence[Chunk]
    meter: Meter
    emit: Callable[[Event], None]
    read: set[int] = field(default_factory=set)
    failed: dict[int, FailedChunk] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _failed_calls: int = 0
    _shown_probability: float = 0.0

    @property
    def unread(self) -> list[int]:
        return [chunk.index for chunk in self.chunks if chunk.index not in self.read | self.failed.keys()]

    def add_read(self, index: int, finding: Finding | None) -> None:
        """The chunk was read, whatever failed before."""
        self.read.add(index)
        self.failed.pop(index, None)
        self.emit(ChunkMapped(chunk_index=index, finding=finding))

    def add_failed(self, index: int, failed: CallFailed) -> None:
        """A call on the chunk failed for good; a chunk that another call has read stays read."""
        self.emit(ChunkMapped(chunk_index=index, finding=None))
        self._failed_calls += failed.error != "LimitReached"
        if index not in self.read:
            span = self.chunks[index].span
            self.failed[index] = FailedChunk(
                index=index, span=span, stage=Stage.MAP, error=failed.error, message=failed.message
            )

    def show(self, conclusion: Conclusion, reason: str) -> None:
        """Emit a provisional answer if it is probable enough and better than what was shown before."""
        if not conclusion.text or conclusion.probability < PROVISIONAL_PROBABILITY:
            return
        if conclusion.probability > self._shown_probability:
            self._shown_probability = conclusion.probability
            self.emit(Provisional(answer=self.answer(conclusion, provisional=True), reason=reason))

    def answer(self, conclusion: Conclusion, *, provisional: bool = False) -> Answer:
        coverage = Coverage(
            chunks=len(self.chunks),
            chunks_read=len(self.read),
            chunks_extracted=len(self.read),
            failed_chunks=tuple(self.failed[index] for index in sorted(self.failed)),
        )
        return Answer(
            text=conclusion.text,
            explanation=conclusion.explanation,
            found=bool(conclusion.text),
            confidence=conclusion.confidence,
            probability=conclusion.probability,
            evidence=conclusion.evidence,
            conflicts=conclusion.conflicts,
            coverage=coverage,
            usage=dict(self.meter.usage),
            seconds=self.meter.seconds,
            total_seconds=self.meter.elapsed_s(),
            provisional=provisional,
            stopped_by=self.meter.stopped_by,
            warnings=tuple(self._warnings(conclusion, coverage)),
        )

    def _warnings(self, conclusion: Conclusion, coverage: Coverage) -> list[str]:
        warnings = [conclusion.warning] if conclusion.warning else []
        failed = [chunk for chunk in coverage.failed_chunks if chunk.error != "LimitReached"]
        if failed:
            warnings.append(f"{len(failed)} of {coverage.chunks} chunks could not be read: {failed[0].message}")
        if (others := self._failed_calls - len(failed)) > 0:
            warnings.append(f"{others} calls failed on chunks that were read by other calls.")
        if self.meter.stopped_by:
            warnings.append(f"Reading stopped at the limit on {self.meter.stopped_by}; {coverage.share:.0%} was read.")
        return [*warnings, *self.warnings]
