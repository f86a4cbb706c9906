"""What became of each chunk, and the answer that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.chunks.split import Chunk
from pipeline.documents.document import Span
from pipeline.findings.answer import Answer, Conclusion, Coverage, FailedChunk
from pipeline.findings.finding import Finding
from pipeline.llm.model import LIMIT_REACHED, CallFailed, Stage
from pipeline.run.events import ChunkMapped, Event, Provisional
from pipeline.run.meter import Meter
from pipeline.text import same_answer

PROVISIONAL_PROBABILITY = 0.5
"""A first answer is shown when it is more likely right than not."""


@dataclass(slots=True, kw_only=True)
class CoverageTracker:
    """Each chunk ends as read, failed or unread, exactly once, however often it was asked about."""

    meter: Meter
    emit: Callable[[Event], None]
    chunks: Sequence[Chunk] = ()
    gated: set[int] = field(default_factory=set)
    """Indices of chunks that were judged for their relevance: read, if nothing failed later."""
    read: set[int] = field(default_factory=set)
    """Indices of chunks that were read for what they say."""
    failed: dict[int, FailedChunk] = field(default_factory=dict)
    unchecked: set[int] = field(default_factory=set)
    """Indices of chunks whose finding was judged without the support check, because that call failed."""
    warnings: list[str] = field(default_factory=list)
    """What else the answer must tell."""
    _recovered: set[int] = field(default_factory=set)
    """Chunks on which one call failed and another did not."""
    _shown: Conclusion | None = None

    @property
    def unread(self) -> list[int]:
        known = self.read | self.failed.keys()
        return [chunk.index for chunk in self.chunks if chunk.index not in known]

    def add_read(self, index: int, finding: Finding | None) -> None:
        """The chunk was read, whatever failed before; `finding` is what it said, if anything."""
        before = self.failed.pop(index, None)
        if before is not None and before.error != LIMIT_REACHED:
            self._recovered.add(index)
        self.read.add(index)
        self.emit(ChunkMapped(chunk_index=index, finding=finding))

    def add_failed(self, index: int, failed: CallFailed, stage: Stage = Stage.MAP) -> None:
        """A call on the chunk failed for good; a chunk that another call has read stays read."""
        if index not in self.read:
            span = self.chunks[index].span
            self.failed[index] = FailedChunk(
                index=index, span=span, stage=stage, error=failed.error, message=failed.message
            )
        elif failed.error != LIMIT_REACHED:
            self._recovered.add(index)
        if stage is Stage.MAP:
            self.emit(ChunkMapped(chunk_index=index, finding=None))

    def coverage(self) -> Coverage:
        return Coverage(
            chunks=len(self.chunks),
            chunks_read=len((self.gated | self.read) - self.failed.keys()),
            chunks_extracted=len(self.read),
            failed_chunks=tuple(self.failed[index] for index in sorted(self.failed)),
        )

    def show(self, conclusion: Conclusion, first: str) -> None:
        """Emit a provisional answer if it is probable enough and more so than those before; `first` explains the first.

        Shown with how much was read by then.
        """
        before = self._shown
        if not conclusion.text or conclusion.probability < PROVISIONAL_PROBABILITY:
            return
        if before is not None and conclusion.probability <= before.probability:
            return
        self._shown = conclusion
        if before is None:
            reason = first
        elif same_answer(before.text, conclusion.text):
            reason = "better supported"
        else:
            reason = "another part supports a different answer better"
        self.show_always(conclusion, reason)

    def show_always(self, conclusion: Conclusion, reason: str) -> None:
        self.emit(Provisional(answer=self.answer(conclusion, provisional=True), reason=reason))

    def answer(
        self,
        conclusion: Conclusion,
        *,
        coverage: Coverage | None = None,
        made_from: tuple[Span, ...] = (),
        provisional: bool = False,
    ) -> Answer:
        """What was concluded, with what the run knows; `coverage` replaces the account's where it says more."""
        coverage = coverage or self.coverage()
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
            usage=dict(self.meter.usage),
            seconds=self.meter.seconds,
            total_seconds=self.meter.elapsed_s(),
            provisional=provisional,
            stopped_by=self.meter.stopped_by,
            warnings=tuple(self._warnings(conclusion, coverage)),
        )

    def _warnings(self, conclusion: Conclusion, coverage: Coverage) -> list[str]:
        """The conclusion's warning, chunks that failed, a limit that was reached, then the strategy's own."""
        warnings = [conclusion.warning] if conclusion.warning else []
        failed = [chunk for chunk in coverage.failed_chunks if chunk.error != LIMIT_REACHED]
        if failed:
            warnings.append(f"{len(failed)} of {coverage.chunks} chunks could not be read: {failed[0].message}")
        if self._recovered:
            warnings.append(f"Calls failed on {len(self._recovered)} chunks that other calls have read.")
        if self.unchecked:
            warnings.append(
                f"The support check failed on {len(self.unchecked)} findings, which count for less without it."
            )
        if self.meter.stopped_by:
            warnings.append(f"Reading stopped at the limit on {self.meter.stopped_by}; {coverage.share:.0%} was read.")
        return [*warnings, *self.warnings]
