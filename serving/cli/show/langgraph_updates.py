"""A run's events as `(node, update)` pairs, as LangGraph streams them in its mode `updates`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.run.events import ChunkGated, ChunkMapped, Collapsed, Event, Finished, Planned

Update = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNames:
    """What the nodes are called, and the keys of the state that they write to. Without a name a node is not told."""

    gate: str = ""
    map: str
    collect: str
    collapse: str
    reduce: str
    mapped: str
    collapsed: str
    final: str


OURS = StepNames(
    gate="gate",
    map="map",
    collect="collect",
    collapse="collapse",
    reduce="reduce",
    mapped="findings",
    collapsed="collapsed_findings",
    final="final_answer",
)
LANGGRAPH = StepNames(
    map="generate_summary",
    collect="collect_summaries",
    collapse="collapse_summaries",
    reduce="generate_final_summary",
    mapped="summaries",
    collapsed="collapsed_summaries",
    final="final_summary",
)
"""As the published guide to map-reduce summarization names them."""


@dataclass(slots=True)
class UpdatesView:
    """Fed with every event of one run, in order; gives the updates that each event completes.

    One per gated chunk, one per mapped chunk, one when every chunk was mapped, one per collapse pass, one for the
    answer. Chunks come as they end, so in document order only where the dispatcher or the strategy keeps it; a chunk
    that is asked about again is told again. A pass is told when the next one begins or the run ends, because only then
    it is known to be over; where passes overlap, each run of merges of equal depth is one.
    """

    names: StepNames = OURS
    _chunks: int = 0
    _mapped: set[int] = field(default_factory=set)
    _collected: bool = False
    _depth: int = 0
    _merged: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Event) -> Iterator[Update]:
        names = self.names
        match event:
            case Planned():
                self._chunks = event.plan.chunks
            case ChunkGated() if names.gate:
                yield names.gate, {"chunk": event.chunk_index, "score": round(event.score, 4)}
            case ChunkMapped():
                yield from self._map(event)
            case Collapsed():
                if event.depth != self._depth:
                    yield from self._end_pass()
                self._depth = event.depth
                self._merged.append({"chunks": list(event.chunk_indices), "text": event.text})
            case Finished():
                yield from self._end_pass()
                yield names.reduce, {names.final: event.answer.text}
            case _:
                pass

    def _map(self, event: ChunkMapped) -> Iterator[Update]:
        text = event.finding.answer if event.finding else ""
        yield self.names.map, {self.names.mapped: [text], "chunk": event.chunk_index}
        self._mapped.add(event.chunk_index)
        if len(self._mapped) == self._chunks and not self._collected:
            self._collected = True
            yield self.names.collect, {}

    def _end_pass(self) -> Iterator[Update]:
        if self._merged:
            yield self.names.collapse, {self.names.collapsed: self._merged}
            self._merged = []


def updates(events: Iterable[Event], names: StepNames = OURS) -> Iterator[Update]:
    """The updates of a whole run."""
    view = UpdatesView(names)
    for event in events:
        yield from view.add(event)
