"""Pictures are the same for the same rows, and what they say can be read from their text."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.report.charts import Bar, BarPanel, Grid, Line, draw_bars, draw_grids, draw_lines


def texts_of(svg: str) -> list[str | None]:
    return [text.text for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314  our own text


def test_the_same_bars_give_the_same_file_and_every_text_is_in_it() -> None:
    bars = [Bar(label="<a> $b_1$", value=1.0, high=4.0, note="1 s"), Bar(label="c", value=2.0, note="2 s")]
    drawn = draw_bars("t", [BarPanel(title="p", bars=bars), BarPanel(title="none", bars=[])])
    assert drawn == draw_bars("t", [BarPanel(title="p", bars=bars), BarPanel(title="none", bars=[])])
    for text in ("&lt;a&gt; $b_1$", "1 s", "c", "2 s", "p", "none", "t"):
        assert f">{text}</text>" in drawn


def test_lines_are_named_and_those_without_points_are_left_out() -> None:
    lines = [Line(name="a < b", points=[(8_000, 10.0), (16_000, 31.0)]), Line(name="nothing", points=[])]
    drawn = draw_lines("title", lines, "tokens", "seconds", ["a note"])
    assert {"title", "a < b", "a note", "10", "10K"} <= set(texts_of(drawn))
    assert "nothing" not in texts_of(drawn)


def test_where_no_way_could_run_the_picture_has_the_reasons_and_no_axes() -> None:
    drawn = draw_lines("title", [], "tokens", "seconds", ["no memory"])
    assert texts_of(drawn) == ["title", "no memory"]


def test_the_heat_map_has_the_value_of_each_cell_and_grey_for_what_was_not_scored() -> None:
    grid = Grid(title="a < b", columns=["8K", "16K"], rows=["0 %"], values={("8K", "0 %"): 0.25})
    drawn = draw_grids("title", [grid], "tokens", "depth")
    assert {"title", "a < b", "8K", "16K", "0 %", "0.25"} <= set(texts_of(drawn))
    assert drawn.count("fill: #bbbbbb") == 1
