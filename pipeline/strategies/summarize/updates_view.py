"""A run's events as `(node, update)` pairs, as LangGraph streams them in its mode `updates`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.events import ChunkMapped, Collapsed, Event, Finished, Planned

Update = tuple[str, dict[str, Any]]

STEPS = {"map": "map", "collect": "collect", "collapse": "collapse", "reduce": "reduce"}
"""Nodes under our own names."""
LANGGRAPH_STEPS = {
    "map": "generate_summary",
    "collect": "collect_summaries",
    "collapse": "collapse_summaries",
    "reduce": "generate_final_summary",
}
"""Nodes as the published guide to map-reduce summarization names them."""


def updates(events: Iterable[Event], names: Mapping[str, str] = STEPS) -> Iterator[Update]:
    """One update per mapped chunk, one when all are, one per collapse pass, one for the answer.

    Chunks come in document order, but for those that had to be asked for again; LangGraph gives the order to a reducer
    only and streams them as they end. A pass is told when the next one begins or the run ends, because only then it is
    known to be over.
    """
    unmapped = 0
    depth, merged = 0, list[dict[str, Any]]()
    for event in events:
        if isinstance(event, Collapsed | Finished) and merged and getattr(event, "depth", None) != depth:
            yield names["collapse"], {"collapsed_summaries": merged}
            merged = []
        match event:
            case Planned():
                unmapped = event.plan.chunks
            case ChunkMapped():
                unmapped -= 1
                text = event.finding.answer if event.finding else ""
                yield names["map"], {"summaries": [text], "chunk": event.chunk_index}
                if not unmapped:
                    yield names["collect"], {}
            case Collapsed():
                depth = event.depth
                merged.append({"chunks": list(event.chunk_indices), "text": event.text})
            case Finished():
                yield names["reduce"], {"final_summary": event.answer.text}
            case _:
                pass
