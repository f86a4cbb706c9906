"""What was read and what was not, as every strategy reports it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.answer import Coverage, FailedChunk
from pipeline.model import CallFailed, Stage
from pipeline.split_document import Chunk


def failed_chunk(chunk: Chunk, failure: CallFailed, stage: Stage = Stage.MAP) -> FailedChunk:
    return FailedChunk(index=chunk.index, span=chunk.span, stage=stage, error=failure.error, message=failure.message)


def coverage_of(chunks: Sequence[Chunk], failed: Sequence[FailedChunk], unread: int = 0) -> Coverage:
    """Where every chunk is read closely, unless its call failed or it was not reached yet (`unread`)."""
    read = len(chunks) - len(failed) - unread
    return Coverage(chunks=len(chunks), chunks_read=read, chunks_extracted=read, failed_chunks=tuple(failed))
