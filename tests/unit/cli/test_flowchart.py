"""Plans' graphs as drawings: whole, well-formed, and no box or label on top of another."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InternalError
from pipeline.front_door import plan
from pipeline.llm.scripted import seeded_script
from pipeline.run.request import Request
from pipeline.strategies import STRATEGIES
from serving.flowchart import draw_flowchart
from tests.factories import fact_document, make_resources
from tests.unit.cli.command_stage import Stage

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [f"n{number}" for number in range(7)]
WORDS = st.text(
    st.characters(exclude_characters="\n\r]>-.", exclude_categories=("Z", "Cc", "Cs")), min_size=1, max_size=12
)
ARROWS = st.one_of(st.just("-->"), st.just("-.->"), WORDS.map("-- {} -->".format), WORDS.map("-. {} .->".format))
LINKS = st.lists(st.tuples(st.sampled_from(NAMES), ARROWS, st.sampled_from(NAMES)), max_size=14)
"""Arrows of any kind: on, back, over others, to their own start, twice."""


def graph_of(strategy: str) -> str:
    document = fact_document({}, paragraphs=4 if strategy == "direct" else 30)
    return plan(document, Request(question="Who?", strategy=strategy), make_resources(seeded_script(1))).graph


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  # our own


def numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(str(element.get(name, 0))) for name in names]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_node_and_edge_of_a_plan_is_drawn(strategy: str) -> None:
    graph = graph_of(strategy)
    svg = parsed(draw_flowchart(graph))
    drawn = {node.get("data-node"): node.findtext(f"{SVG}text") for node in svg.findall(f"{SVG}g[@class='node']")}
    assert drawn.items() >= dict(re.findall(r"(\w+)\[(.+?)\]", graph)).items()
    assert drawn.keys() >= {"document", "answer"}
    edges = svg.findall(f"{SVG}g[@class='edge']")
    assert len(edges) == len(re.findall(r"->", graph)), "an arrow of the text was not read"
    assert {end for edge in edges for end in (edge.get("data-from"), edge.get("data-to"))} == drawn.keys()
    labels = {text.text for edge in edges for text in edge.findall(f"{SVG}text")}
    assert labels == {label.strip() for label in re.findall(r"-[-.] (.+?) [-.]->", graph)}
    assert len(svg.findall(f".//{SVG}path[@class='dashed']")) == graph.count(".->")


@given(st.dictionaries(st.sampled_from(NAMES), WORDS, min_size=1), LINKS)
def test_whatever_is_linked_nothing_covers_anything(labels: dict[str, str], links: list[tuple[str, str, str]]) -> None:
    lines = [f"{name}[{label}]" for name, label in labels.items()] + [" ".join(link) for link in links]
    svg = parsed(draw_flowchart("\n".join(["flowchart LR", *lines])))
    edges = svg.findall(f"{SVG}g[@class='edge']")
    assert [(edge.get("data-from"), edge.get("data-to")) for edge in edges] == [(a, b) for a, _, b in links]

    boxes = [numbers(box, "x", "width", "height") for box in svg.findall(f".//{SVG}rect")]
    left, top, width, height = (float(number) for number in str(svg.get("viewBox")).split())
    assert all(one[0] + one[1] < other[0] for one, other in itertools.pairwise(boxes))
    assert all(left <= x and x + wide <= left + width and top <= 0 and high <= top + height for x, wide, high in boxes)

    told = [numbers(text, "x", "y") for edge in edges for text in edge.findall(f"{SVG}text")]
    arcs = [(x, y) for x, y in told if not 0 < y < boxes[0][2]]
    assert len({y for _, y in arcs}) == len(arcs), "two arcs of one height"
    assert len(set(map(tuple, told))) == len(told)
    assert all(left <= x <= left + width and top < y < top + height for x, y in told)


def test_labels_are_text_and_never_markup() -> None:
    drawn = draw_flowchart('flowchart LR\n    a[<script>alert("1")</script>] -- <b>&amp;\x1b --> b')
    assert "<script" not in drawn
    assert parsed(drawn).findtext(f"{SVG}g[@data-node='a']/{SVG}text") == '<script>alert("1")</script>'
    assert parsed(drawn).findtext(f"{SVG}g[@class='edge']/{SVG}text") == "<b>&amp;\ufffd"


def test_what_the_graphs_of_plans_never_hold_is_refused() -> None:
    for text in (
        "",
        "flowchart LR",
        "sequenceDiagram\n a->>b: hi",
        "flowchart LR\n  a ==> b",
        "flowchart LR\n  a[b --> c",
    ):
        with pytest.raises(InternalError):
            draw_flowchart(text)


def test_what_is_drawn_is_also_said() -> None:
    said = parsed(draw_flowchart("flowchart LR\n    a[chunk] -- notes --> b --> a")).get("aria-label")
    assert said == "Stages: chunk to b (notes); b to chunk"


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
