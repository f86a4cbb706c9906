"""A run's events as `(node, update)` pairs, as LangGraph streams them in its mode `updates`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.run.events import ChunkGated, ChunkMapped, Collapsed, Event, Finished
from pipeline.run.state import RunState

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


class UpdatesView:
    """Give it every event of one run, in order; it gives back the updates that each event completes.

    One per gated chunk, one per mapped chunk, one when every chunk was mapped, one per collapse pass, one for the
    answer. Chunks come as they end, so in document order only where the dispatcher or the strategy keeps it; a chunk
    that is asked about again is reported again. A pass is reported when the next one begins or the run ends, because
    only then it is known to be over; where passes overlap, each run of merges of equal depth is one.
    """

    def __init__(self, names: StepNames = OURS) -> None:
        self._names = names
        self._state = RunState()
        self._collected = False
        self._collapses_reported = 0

    def add(self, event: Event) -> Iterator[Update]:
        names, state = self._names, self._state
        pass_ends = isinstance(event, Finished) or (isinstance(event, Collapsed) and self._begins_pass(event))
        if pass_ends and (merged := state.collapses[self._collapses_reported :]):
            self._collapses_reported = len(state.collapses)
            yield (
                names.collapse,
                {names.collapsed: [{"chunks": list(one.chunk_indices), "text": one.text} for one in merged]},
            )
        state.apply(event)
        match event:
            case ChunkGated() if names.gate:
                yield names.gate, {"chunk": event.chunk_index, "score": round(event.score, 4)}
            case ChunkMapped():
                text = event.finding.answer if event.finding else ""
                yield names.map, {names.mapped: [text], "chunk": event.chunk_index}
                mapped = sum(chunk.is_mapped for chunk in state.chunks)
                if state.plan is not None and mapped == state.plan.chunks and not self._collected:
                    self._collected = True
                    yield names.collect, {}
            case Finished():
                yield names.reduce, {names.final: event.answer.text}
            case _:
                pass

    def _begins_pass(self, event: Collapsed) -> bool:
        collapses = self._state.collapses
        return bool(collapses) and collapses[-1].depth != event.depth


def updates(events: Iterable[Event], names: StepNames = OURS) -> Iterator[Update]:
    """The updates of a whole run."""
    view = UpdatesView(names)
    for event in events:
        yield from view.add(event)
