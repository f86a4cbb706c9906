"""Reads the part of Mermaid that plans are written in.

`flowchart LR`, then chains of nodes `name` or `name[label]` joined by `-->`, `-- label -->`, `-.->` or `-. label .->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import InternalError

_NODE = re.compile(r"\s*(?P<name>\w+)(?:\[(?P<label>[^\]]+)\])?\s*")
_LINK = re.compile(r"-->|-\.->|--\s+(?P<solid>.+?)\s+-->|-\.\s+(?P<dashed>.+?)\s+\.->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An arrow between two nodes, by name."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flowchart:
    labels: Mapping[str, str]
    """Of each node, by name, in the order in which they first stand in the text."""
    edges: tuple[Edge, ...]


def read_flowchart(text: str) -> Flowchart:
    """Raises InternalError for anything else: plans are written by us."""
    head, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    if head.strip() != "flowchart LR":
        raise InternalError(f"The plan's graph begins with {head!r}, which cannot be drawn; please report it.")
    labels: dict[str, str] = {}
    edges: list[Edge] = []
    for line in lines:
        _read_chain(line, labels, edges)
    return Flowchart(labels=labels, edges=tuple(edges))


def _read_chain(line: str, labels: dict[str, str], edges: list[Edge]) -> None:
    position, start = 0, ""
    link: re.Match[str] | None = None
    while True:
        node = _NODE.match(line, position)
        if node is None:
            raise InternalError(f"The plan's graph holds {line.strip()!r}, which cannot be drawn; please report it.")
        name = node["name"]
        if node["label"] or name not in labels:
            labels[name] = node["label"] or name
        if link is not None:
            label = link["solid"] or link["dashed"] or ""
            edges.append(Edge(start=start, end=name, label=label, dashed=link[0].startswith("-.")))
        if node.end() == len(line):
            return
        link = _LINK.match(line, node.end())
        position, start = (link.end(), name) if link else (len(line), name)
