"""A plan's graph, Mermaid text, as an SVG drawing: all boxes in one line, left to right, in the order of the text.

An arrow to the next box is straight; every other one is an arc, above the line if it leads on and below it if it leads
back or to its own start. No two arcs of a side have the same height, so no label covers another. For the terminal's
`--graph plan.svg` and for the console, which shows it as an image: labels stay text wherever they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from pipeline.errors import InternalError

_NODE = re.compile(r"\s*(?P<name>\w+)(?:\[(?P<label>[^\]]+)\])?\s*")
_LINK = re.compile(r"-->|-\.->|--\s+(?P<solid>.+?)\s+-->|-\.\s+(?P<dashed>.+?)\s+\.->")
_NO_XML = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_BOX_HEIGHT, _GAP, _ARC_STEP, _MARGIN = 34, 34, 26, 20  # pixels, as are all numbers here
_Edge = tuple[str, str, str, bool]  # start, end, label, dashed
_STYLE = """
svg { background: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #1e2126; text-anchor: middle; dominant-baseline: central; }
rect { fill: #f1efeb; stroke: #87847d; } path { fill: none; stroke: #87847d; stroke-width: 1.25; }
marker path { fill: #87847d; } .edge text { font-size: 12px; fill: #5c626c; } .dashed { stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  svg { background: #1b1e22; }
  text { fill: #e7e5e0; } rect { fill: #16181b; stroke: #767c86; } path { stroke: #767c86; }
  marker path { fill: #767c86; } .edge text { fill: #a0a6af; }
}"""


def draw_flowchart(graph: str) -> str:
    """A whole SVG file; its `aria-label` says in words what it shows. Raises InternalError for other Mermaid text."""
    labels, edges = _read(graph)

    # 1. Place the boxes; between two there is room for the label of a straight arrow.
    names, boxes, x = list(labels), {}, 0
    for name, follower in zip(names, [*names[1:], ""], strict=True):
        boxes[name] = (x, _text_width(labels[name]) + 28)
        beside = [_text_width(label) for start, end, label, _ in edges if (start, end) == (name, follower)]
        x += boxes[name][1] + _GAP + max(beside, default=0)

    # 2. Give each arc a height of its own; the shortest is nearest to the line. A second arrow to the next box is one.
    spans = [names.index(end) - names.index(start) for start, end, _, _ in edges]
    straight = {edge[:2]: at for at, edge in reversed(list(enumerate(edges))) if spans[at] == 1}.values()
    heights = [0] * len(edges)
    for sign in (-1, 1):
        arcs = [at for at, span in enumerate(spans) if at not in straight and (span > 0) == (sign < 0)]
        for level, at in enumerate(sorted(arcs, key=lambda at: abs(spans[at])), start=1):
            heights[at] = sign * level * _ARC_STEP
    halves = [(_middle(boxes, edge), _text_width(edge[2]) // 2) for edge in edges]
    left, right = min([0, *(x - half for x, half in halves)]), max([x - _GAP, *(x + half for x, half in halves)])
    top, bottom = min([0, *heights]), _BOX_HEIGHT + max([0, *heights])

    # 3. Draw.
    edges_text = "; ".join(f"{labels[a]} to {labels[b]}" + (f" ({label})" if label else "") for a, b, label, _ in edges)
    about = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": f"Stages: {edges_text}"}
    width, height = right - left + 2 * _MARGIN, bottom - top + 2 * _MARGIN
    view = {"width": f"{width}", "height": f"{height}", "viewBox": f"{left - _MARGIN} {top - _MARGIN} {width} {height}"}
    root = ET.Element("svg", about | view)
    ET.SubElement(root, "style").text = _STYLE
    tip = {"id": "tip", "viewBox": "0 0 8 8", "refX": "8", "refY": "4", "markerWidth": "7", "orient": "auto"}
    ET.SubElement(ET.SubElement(root, "marker", tip), "path", {"d": "M0 0L8 4L0 8z"})
    for edge, arc, (middle, _) in zip(edges, heights, halves, strict=True):
        start, end, label, dashed = edge
        (x1, width1), (x2, width2) = boxes[start], boxes[end]
        if not arc:
            way, label_y = f"M{x1 + width1} {_BOX_HEIGHT // 2}H{x2}", _BOX_HEIGHT // 2 - 9
        else:  # a Bézier curve reaches three quarters of the way to its control points
            side = _BOX_HEIGHT if arc > 0 else 0
            begin, stop, bend = f"{x1 + width1 * 0.6:g}", f"{x2 + width2 * 0.4:g}", f"{side + arc * 4 / 3:g}"
            way = f"M{begin} {side}C{begin} {bend} {stop} {bend} {stop} {side}"
            label_y = side + arc + (9 if arc > 0 else -9)
        group = ET.SubElement(root, "g", {"class": "edge", "data-from": start, "data-to": end})
        ET.SubElement(group, "path", {"d": way, "marker-end": "url(#tip)"} | ({"class": "dashed"} if dashed else {}))
        if label:
            ET.SubElement(group, "text", {"x": f"{middle}", "y": f"{label_y}"}).text = label
    for name, (left, wide) in boxes.items():
        group = ET.SubElement(root, "g", {"class": "node", "data-node": name})
        ET.SubElement(group, "rect", {"x": f"{left}", "width": f"{wide}", "height": f"{_BOX_HEIGHT}", "rx": "6"})
        ET.SubElement(group, "text", {"x": f"{left + wide // 2}", "y": f"{_BOX_HEIGHT // 2}"}).text = labels[name]
    return ET.tostring(root, encoding="unicode") + "\n"


def _read(graph: str) -> tuple[dict[str, str], list[_Edge]]:
    """Boxes, label by name in the order in which they first come, and arrows.

    Of Mermaid only what plans use: `flowchart LR`, then chains of `name` or `name[label]` joined by `-->`,
    `-- label -->`, `-.->` or `-. label .->`.
    """
    head, *lines = [line for line in graph.splitlines() if line.strip()] or [""]
    if head.strip() != "flowchart LR" or not lines:
        raise InternalError(f"The plan's graph begins with {head!r}, which cannot be drawn; please report it.")
    labels: dict[str, str] = {}
    edges: list[_Edge] = []
    for line in lines:
        position, start = 0, ""
        link: re.Match[str] | None = None
        while node := _NODE.match(line, position):
            name = node["name"]
            if node["label"] or name not in labels:
                labels[name] = _NO_XML.sub("\ufffd", node["label"] or name)
            if link is not None:
                label = _NO_XML.sub("\ufffd", link["solid"] or link["dashed"] or "")
                edges.append((start, name, label, link[0].startswith("-.")))
            position, start = node.end(), name
            link = _LINK.match(line, position)
            if link is None:
                break
            position = link.end()
        if position != len(line):
            raise InternalError(f"The plan's graph holds {line.strip()!r}, which cannot be drawn; please report it.")
    return labels, edges


def _text_width(text: str) -> int:
    """About what a sans-serif font takes, rather more than less."""
    return sum(14 if char > "\u2e80" else 8 for char in text)


def _middle(boxes: Mapping[str, tuple[int, int]], edge: _Edge) -> int:
    """Between the two ends of an arrow, where its label is."""
    (left, left_width), (right, _) = sorted((boxes[edge[0]], boxes[edge[1]]))
    return left + left_width // 2 if left == right else (left + left_width + right) // 2
