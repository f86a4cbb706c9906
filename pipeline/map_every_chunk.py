"""One call per chunk, whatever the chunk says: the map of strategies that have no gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.answer import Coverage, FailedChunk
from pipeline.coverage import coverage_of, failed_chunk
from pipeline.events import ChunkMapped, StageStarted
from pipeline.finding import Finding
from pipeline.meter import Meter
from pipeline.model import Call, CallFailed, Completion, Stage
from pipeline.parse_outcomes import complete_parsed
from pipeline.run import Resources
from pipeline.split_document import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChunk:
    """What one chunk said."""

    finding: Finding
    score: int = 0
    """How well it answers, where the strategy asks for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Chunks that said something, in document order, and what is known of all."""

    read: tuple[ReadChunk, ...]
    coverage: Coverage


async def map_every_chunk(
    chunks: Sequence[Chunk],
    make_call: Callable[[Chunk], Call],
    parse: Callable[[Chunk, Completion], ReadChunk],
    meter: Meter,
    resources: Resources,
    *,
    order: Sequence[int] | None = None,
) -> Mapped:
    """Send in `order` (of chunk indices; document order without), tell each outcome, return in document order.

    `parse` raises MalformedOutput. A call that fails leaves its chunk unread, and the others are read.
    """
    order = range(len(chunks)) if order is None else order
    calls = [resources.budget.prove(make_call(chunks[index])) for index in order]
    resources.emit(StageStarted(stage=Stage.MAP, calls=len(calls)))
    read: dict[int, ReadChunk] = {}
    failed: dict[int, FailedChunk] = {}
    position = 0
    async for outcome in complete_parsed(calls, lambda at, done: parse(chunks[order[at]], done), meter):
        index = order[position]
        position += 1
        if isinstance(outcome, CallFailed):
            failed[index] = failed_chunk(chunks[index], outcome)
        elif not outcome.finding.is_empty:
            read[index] = outcome
        resources.emit(ChunkMapped(chunk_index=index, finding=read[index].finding if index in read else None))
    return Mapped(
        read=tuple(read[index] for index in sorted(read)),
        coverage=coverage_of(chunks, [failed[index] for index in sorted(failed)]),
    )
