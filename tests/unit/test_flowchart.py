"""Plans' graphs as drawings: whole, well-formed, and nothing on top of anything."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ask import plan
from pipeline.errors import InternalError
from pipeline.request import Request
from pipeline.scripted_model import seeded_script
from pipeline.strategies import STRATEGIES
from serving.draw_flowchart import draw_flowchart
from serving.lay_out_flowchart import HIGH, Box, lay_out
from serving.read_flowchart import Edge, Flowchart, read_flowchart
from tests.factories import fact_document, make_resources
from tests.unit.command_stage import Stage

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [f"n{number}" for number in range(7)]
TEXT = st.text(st.characters(exclude_characters="\n\r"), max_size=12)
EDGES = st.builds(Edge, start=st.sampled_from(NAMES), end=st.sampled_from(NAMES), label=TEXT, dashed=st.booleans())
CHARTS = st.builds(
    lambda labels, edges: Flowchart(labels=labels, edges=tuple(edges)),
    st.fixed_dictionaries(dict.fromkeys(NAMES, TEXT)),
    st.lists(EDGES, max_size=14),
)


def graph_of(strategy: str) -> str:
    document = fact_document({}, paragraphs=4 if strategy == "direct" else 30)
    return plan(document, Request(question="Who?", strategy=strategy), make_resources(seeded_script(1))).graph


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  # our own


def drawn_edges(svg: ET.Element) -> list[tuple[str | None, str | None]]:
    return [(g.get("data-from"), g.get("data-to")) for g in svg.findall(f"{SVG}g[@class='flow-edge']")]


def apart(one: Box, other: Box) -> bool:
    return one.right <= other.x or other.right <= one.x or one.y + HIGH <= other.y or other.y + HIGH <= one.y


def straight_parts(path: str) -> list[tuple[float, float, float, float]]:
    """The horizontal and vertical lines of a path, and its curves as the boxes that hold them."""
    parts, x, y = [], 0.0, 0.0
    for command, numbers in re.findall(r"([MHVC])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        end = {"M": values[-2:], "H": [values[0], y], "V": [x, values[0]], "C": values[-2:]}[command]
        if command != "M":
            parts.append((min(x, end[0]), min(y, end[1]), max(x, end[0]), max(y, end[1])))
        x, y = end
    return parts


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_node_and_edge_of_a_plan_is_drawn(strategy: str) -> None:
    graph = graph_of(strategy)
    chart = read_flowchart(graph)
    svg = parsed(draw_flowchart(chart))
    boxes = svg.findall(f"{SVG}g[@class='flow-node']")
    assert [(box.get("data-node"), box.findtext(f"{SVG}text")) for box in boxes] == list(chart.labels.items())
    assert drawn_edges(svg) == [(edge.start, edge.end) for edge in chart.edges]
    assert len(chart.edges) == len(re.findall(r"->", graph)), "an arrow of the text was not read"
    told = [text.text for text in svg.findall(f"{SVG}g[@class='flow-edge']/{SVG}text")]
    assert told == [edge.label for edge in chart.edges if edge.label]
    dashed = svg.findall(f".//{SVG}path[@class='dashed']")
    assert len(dashed) == graph.count(".->")


@given(CHARTS)
def test_no_two_boxes_overlap_and_no_arrow_crosses_one(chart: Flowchart) -> None:
    layout = lay_out(chart)
    boxes = layout.boxes
    assert boxes.keys() == chart.labels.keys()
    assert all(apart(one, other) for one, other in itertools.combinations(boxes.values(), 2))
    for route in layout.routes:
        for left, top, right, bottom in straight_parts(route.path):
            for box in boxes.values():
                inside = left < box.right - 1 and right > box.x + 1 and top < box.y + HIGH and bottom > box.y
                assert not inside, (route.edge, box)


@given(CHARTS)
def test_whatever_labels_hold_the_drawing_is_well_formed_and_whole(chart: Flowchart) -> None:
    svg = parsed(draw_flowchart(chart))
    assert len(svg.findall(f".//{SVG}rect")) == len(chart.labels)
    assert drawn_edges(svg) == [(edge.start, edge.end) for edge in chart.edges]
    left, top, width, height = (float(number) for number in str(svg.get("viewBox")).split())
    for box in svg.findall(f".//{SVG}rect"):
        x, y, wide = (float(str(box.get(name))) for name in ("x", "y", "width"))
        assert left <= x
        assert x + wide <= left + width
        assert top <= y <= top + height - HIGH


def test_labels_are_text_and_never_markup() -> None:
    text = 'flowchart LR\n    a[<script>alert("1")</script>] -- <b>&amp; --> b'
    drawn = draw_flowchart(read_flowchart(text))
    assert "<script" not in drawn
    assert parsed(drawn).findtext(f"{SVG}g[@data-node='a']/{SVG}text") == '<script>alert("1")</script>'


def test_what_the_graphs_of_plans_never_hold_is_refused() -> None:
    for text in ("", "sequenceDiagram\n a->>b: hi", "flowchart LR\n  a ==> b", "flowchart LR\n  a[b --> c"):
        with pytest.raises(InternalError):
            read_flowchart(text)


def test_the_main_way_is_a_straight_line_with_detours_below() -> None:
    boxes = lay_out(read_flowchart(graph_of("summarize"))).boxes
    main = [boxes[name] for name in ("document", "split", "map", "reduce", "answer")]
    assert {box.y for box in main} == {0.0}
    assert boxes["collapse"].y > 0


@pytest.mark.parametrize("name", ["plan.svg", "plan.mmd"])
def test_a_plans_graph_is_written_beside_the_plan(stage: Stage, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    result = stage.run(str(stage.document), "-q", "Who?", "--plan", "--graph", str(target))
    assert result.exit_code == 0, result.output
    assert "Calls" in result.stdout
    if name.endswith(".svg"):
        assert parsed(target.read_text("utf-8")).find(f"{SVG}g[@data-node='gate']") is not None
    else:
        assert target.read_text("utf-8").startswith("flowchart LR\n    document --> split[")
    assert stage.opened == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graph", "plan.svg"], "give --plan with it"),
        (["--plan", "--graph", "plan.png"], "ends in .svg"),
        (["--plan", "--graph", "missing/plan.svg"], "cannot be written to missing/plan.svg"),
    ],
)
def test_a_graph_that_cannot_be_written_says_why(stage: Stage, arguments: list[str], message: str) -> None:
    result = stage.run(str(stage.document), "-q", "Who?", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
