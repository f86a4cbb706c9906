"""Places a flowchart's boxes in columns, left to right, and its arrows where they cross no box.

An arrow that skips columns keeps a lane of its own in each of them; one that leads back, or to its own start, runs
beneath everything. All arrows go up and down between columns only. Measures are those of the console's drawing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from serving.read_flowchart import Edge, Flowchart

HIGH = 34.0
_PADDING = 14.0
_LANE = HIGH + 14.0
_CURVE = 30.0
"""Room between two columns for arrows to change lanes."""
_TRACK = 10.0
"""Between two arrows that go down, or up, side by side."""
_HEAD = 10.0
_RETURN = 24.0
"""Between two arrows that lead back."""
LABEL_HIGH = 14.0
_LABEL_SPACE = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + HIGH / 2

    @property
    def right(self) -> float:
        return self.x + self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An arrow as an SVG path that ends at a box's left side."""

    edge: Edge
    path: str
    tip: tuple[float, float]
    turns: tuple[tuple[float, float], ...]
    """Points between whose extremes the path stays, together with the boxes."""
    label_at: tuple[float, float]
    """Middle of the label's base line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    boxes: Mapping[str, Box]
    routes: tuple[Route, ...]
    """In the order of the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Where everything stands across: of each column its left and right border, and what is kept free beside it."""

    left: list[float]
    right: list[float]
    labels_from: list[float]
    """Where the labels of the arrows to the next column begin."""
    label_widths: list[float]


def text_width(text: str, size: float = 13.0) -> float:
    """About what a sans-serif font takes, rather more than less."""
    return sum(_char_width(char) for char in text) * size / 13.0


def lay_out(chart: Flowchart) -> Layout:
    """Columns by the longest way from a start; within a column, what stands first in the text is on top."""
    back = _back_edges(chart)
    column_of = _column_of(chart, back)
    lanes = _lanes(chart, back, column_of)
    columns = _place_columns(chart, back, column_of)
    boxes = {}
    for name, column in column_of.items():
        left = columns.left[column]
        boxes[name] = Box(x=left, y=lanes[column][name] * _LANE, width=columns.right[column] - left)
    below = max(len(column) for column in lanes) * _LANE
    returning = sorted(back, key=lambda index: _reach(chart.edges[index], column_of))
    taken: dict[tuple[int, float], int] = {}
    routes = []
    for index, edge in enumerate(chart.edges):
        if index in back:
            depth = below + returning.index(index) * _RETURN + LABEL_HIGH
            routes.append(_route_back(edge, boxes, depth, _track(index, returning, chart, column_of)))
        else:
            routes.append(_route_on(index, edge, column_of, lanes, columns, taken))
    return Layout(boxes=boxes, routes=tuple(routes))


def _char_width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 13.5
    if char in "iljtfrI.,:;'|()[]! ":
        return 5.0
    return 10.5 if char in "mwMW@%×" or char.isupper() else 7.6


def _back_edges(chart: Flowchart) -> set[int]:
    """Edges without which no way leads in a circle: those that meet a node whose own ways are still being followed."""
    leaving: dict[str, list[tuple[int, str]]] = {name: [] for name in chart.labels}
    for index, edge in enumerate(chart.edges):
        leaving[edge.start].append((index, edge.end))
    back: set[int] = set()
    done: set[str] = set()

    def follow(name: str, above: frozenset[str]) -> None:
        for index, end in leaving[name]:
            if end == name or end in above:
                back.add(index)
            elif end not in done:
                follow(end, above | {name})
        done.add(name)

    for name in chart.labels:
        if name not in done:
            follow(name, frozenset())
    return back


def _column_of(chart: Flowchart, back: set[int]) -> dict[str, int]:
    column = dict.fromkeys(chart.labels, 0)
    for _ in chart.labels:
        for index, edge in enumerate(chart.edges):
            if index not in back:
                column[edge.end] = max(column[edge.end], column[edge.start] + 1)
    return column


def _lanes(chart: Flowchart, back: set[int], column_of: Mapping[str, int]) -> list[dict[str | int, int]]:
    """For each column, the lane of its nodes, by name, and of the edges that pass through it, by index."""
    standing: list[list[tuple[int, str | int]]] = [[] for _ in range(max(column_of.values()) + 1)]
    last = len(chart.edges)
    first_edge = dict.fromkeys(chart.labels, last)
    for index, edge in reversed(list(enumerate(chart.edges))):
        first_edge[edge.start] = first_edge[edge.end] = index
    for name, column in column_of.items():
        standing[column].append((2 * first_edge[name], name))
    for index, edge in enumerate(chart.edges):
        if index not in back:
            for column in range(column_of[edge.start] + 1, column_of[edge.end]):
                standing[column].append((2 * index + 1, index))
    return [{key: lane for lane, (_, key) in enumerate(sorted(column, key=lambda one: one[0]))} for column in standing]


def _place_columns(chart: Flowchart, back: set[int], column_of: Mapping[str, int]) -> _Columns:
    count = max(column_of.values()) + 1
    widths, labels, exits, entries = ([0.0] * count for _ in range(4))
    for name, column in column_of.items():
        widths[column] = max(widths[column], text_width(chart.labels[name]) + 2 * _PADDING)
    for index, edge in enumerate(chart.edges):
        start = column_of[edge.start]
        if index in back:
            exits[start] += _TRACK
            entries[column_of[edge.end]] += _TRACK
        elif edge.label:
            labels[start] = max(labels[start], text_width(edge.label, 12.0) + _LABEL_SPACE)
    columns = _Columns(left=[], right=[], labels_from=[], label_widths=labels)
    x = 0.0
    for column in range(count):
        x += entries[column] + _HEAD
        columns.left.append(x)
        columns.right.append(x + widths[column])
        columns.labels_from.append(columns.right[-1] + exits[column] + _CURVE)
        x = columns.labels_from[-1] + labels[column]
    return columns


def _reach(edge: Edge, column_of: Mapping[str, int]) -> int:
    return column_of[edge.start] - column_of[edge.end]


def _track(index: int, returning: list[int], chart: Flowchart, column_of: Mapping[str, int]) -> tuple[float, float]:
    """How far from its boxes an arrow back goes down, and up; the shortest is nearest."""
    before = [chart.edges[other] for other in returning[: returning.index(index)]]
    edge = chart.edges[index]
    leaving = sum(column_of[other.start] == column_of[edge.start] for other in before)
    arriving = sum(column_of[other.end] == column_of[edge.end] for other in before)
    return (leaving + 0.5) * _TRACK, _HEAD + (arriving + 0.5) * _TRACK


def _route_back(edge: Edge, boxes: Mapping[str, Box], depth: float, track: tuple[float, float]) -> Route:
    start, end = boxes[edge.start], boxes[edge.end]
    down, up = start.right + track[0], end.x - track[1]
    path = f"M{start.right:g} {start.middle:g}H{down:g}V{depth:g}H{up:g}V{end.middle:g}H{end.x - 1:g}"
    turns = ((down, depth), (up, end.middle))
    return Route(edge=edge, path=path, tip=(end.x, end.middle), turns=turns, label_at=((down + up) / 2, depth - 5))


def _route_on(
    index: int,
    edge: Edge,
    column_of: Mapping[str, int],
    lanes: list[dict[str | int, int]],
    columns: _Columns,
    taken: dict[tuple[int, float], int],
) -> Route:
    """`taken` counts the labels at each place, which stand on one another."""
    first, last = column_of[edge.start], column_of[edge.end]
    y = lanes[first][edge.start] * _LANE + HIGH / 2
    path = f"M{columns.right[first]:g} {y:g}"
    label_at = (0.0, 0.0)
    turns = []
    for column in range(first + 1, last + 1):
        next_y = lanes[column][edge.end if column == last else index] * _LANE + HIGH / 2
        bend = columns.labels_from[column - 1]
        half = bend - _CURVE / 2
        path += f"H{bend - _CURVE:g}C{half:g} {y:g} {half:g} {next_y:g} {bend:g} {next_y:g}"
        path += f"H{columns.left[column] - 1:g}" if column == last else f"H{columns.right[column]:g}"
        if column == first + 1:
            place = (column, next_y)
            label_at = (bend + columns.label_widths[first] / 2, next_y - 5 - LABEL_HIGH * taken.get(place, 0))
            taken[place] = taken.get(place, 0) + bool(edge.label)
        y = next_y
        turns.append((bend, y))
    return Route(edge=edge, path=path, tip=(columns.left[last], y), turns=tuple(turns), label_at=label_at)
