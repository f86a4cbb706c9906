"""A plan's graph as SVG text, as the console draws it; made here, by no service."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from serving.lay_out_flowchart import HIGH, LABEL_HIGH, Layout, lay_out, text_width
from serving.read_flowchart import Flowchart
from serving.render_answer import printable

_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
_MARGIN = 12.0
_STYLE = """
.flow-node rect { fill: #f1efeb; stroke: #87847d; }
.flow-node text { fill: #1e2126; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; }
.flow-edge path { fill: none; stroke: #87847d; stroke-width: 1.25; }
.flow-edge .dashed { stroke-dasharray: 5 4; }
.flow-edge text { fill: #5c626c; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; }
"""  # noqa: E501


def draw_flowchart(chart: Flowchart) -> str:
    """A whole SVG file. A node is a group with its name in `data-node`, an edge one with `data-from` and `data-to`."""
    layout = lay_out(chart)
    root = _root(chart, layout)
    ET.SubElement(root, "style").text = _STYLE
    for route in layout.routes:
        edge = route.edge
        group = ET.SubElement(root, "g", {"class": "flow-edge", "data-from": edge.start, "data-to": edge.end})
        ET.SubElement(group, "path", {"d": route.path} | ({"class": "dashed"} if edge.dashed else {}))
        x, y = route.tip
        ET.SubElement(group, "path", {"d": f"M{x - 7:g} {y - 4:g}L{x - 1:g} {y:g}L{x - 7:g} {y + 4:g}"})
        if edge.label:
            _add_text(group, edge.label, *route.label_at)
    for name, box in layout.boxes.items():
        group = ET.SubElement(root, "g", {"class": "flow-node", "data-node": name})
        size = {"width": f"{box.width:g}", "height": f"{HIGH:g}", "rx": "6"}
        ET.SubElement(group, "rect", {"x": f"{box.x:g}", "y": f"{box.y:g}"} | size)
        _add_text(group, chart.labels[name], box.x + box.width / 2, box.middle, {"dominant-baseline": "central"})
    return ET.tostring(root, encoding="unicode") + "\n"


def _root(chart: Flowchart, layout: Layout) -> ET.Element:
    told = "; ".join(f"{chart.labels[edge.start]} to {chart.labels[edge.end]}" for edge in chart.edges)
    left, top, right, bottom = _extent(layout)
    width, height = right - left, bottom - top
    return ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "flowchart",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "viewBox": f"{left:g} {top:g} {width:g} {height:g}",
            "style": "background: #ffffff",
            "role": "img",
            "aria-label": _clean(f"Stages: {told}"),
        },
    )


def _extent(layout: Layout) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of all that is drawn, with a margin."""
    corners = [(box.x, box.y) for box in layout.boxes.values()]
    corners += [(box.right, box.y + HIGH) for box in layout.boxes.values()]
    for route in layout.routes:
        (x, y), half = route.label_at, text_width(route.edge.label, 12.0) / 2
        if route.edge.label:
            corners += [(x - half, y - LABEL_HIGH), (x + half, y)]
        corners += route.turns
    across, down = zip(*corners, strict=True)
    return min(across) - _MARGIN, min(down) - _MARGIN, max(across) + _MARGIN, max(down) + _MARGIN


def _add_text(parent: ET.Element, text: str, x: float, y: float, more: dict[str, str] | None = None) -> None:
    at = {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": "middle"}
    ET.SubElement(parent, "text", at | (more or {})).text = _clean(text)


def _clean(text: str) -> str:
    """Without what no XML file can hold; escaping is the serializer's."""
    return _NO_XML.sub("\ufffd", printable(text))
