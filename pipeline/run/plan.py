"""The cost and the shape of a run, known before any call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do, known before any call. Counts are bounds where the document decides on the way."""

    strategy: str
    reason: str
    document_tokens: int
    chunks: int
    calls: int
    """At most."""
    prompt_tokens: int
    """At most, the prefix cache left aside."""
    output_tokens: int
    """At most."""
    depth: int
    """Longest chain of calls that wait for one another."""
    graph: str
    """The stages as Mermaid text."""
