"""Every picture of the reports, as SVG text: bars, lines over logarithmic axes, heat maps."""

from __future__ import annotations

import io
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

_FILL, _NOT_SCORED = "#3b6ea8", "#bbbbbb"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by the colour blind too (Okabe and Ito)."""
_STYLE: Any = {  # matplotlib types the keys as one long Literal
    "svg.fonttype": "none",  # text stays text: it can be searched, and needs no font file
    "svg.hashsalt": "longfold",  # the same rows give the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,  # a name may hold a dollar sign
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure, from 0 to `value`."""

    label: str
    value: float
    high: float | None = None
    """End of a whisker, for instance p99."""
    note: str
    """The figure as text, at the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPanel:
    """Bars of one unit, on a scale of their own."""

    title: str
    bars: Sequence[Bar]
    full: float | None = None
    """The value of a bar of full length; None: the longest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    """Both above 0."""
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One heat map. A cell without a value was not scored and is drawn grey."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Mapping[tuple[str, str], float]
    """By column and row, 0 to 1."""


def median_bar(label: str, values: Sequence[float], note: str) -> Bar:
    """Up to the median, with a whisker to the highest; `note` is a format of the median."""
    median = statistics.median(values)
    return Bar(label=label, value=median, high=max(values), note=note.format(median))


def draw_bars(title: str, panels: Sequence[BarPanel]) -> str:
    """Panels below one another."""
    with mpl.rc_context(_STYLE):
        rows = [len(panel.bars) + 1 for panel in panels]
        figure = Figure(figsize=(8.5, 0.6 + 0.28 * sum(rows) + 0.35 * len(rows)), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        axes = figure.subplots(max(1, len(panels)), 1, squeeze=False, height_ratios=rows or [1])[:, 0]
        for axis, panel in zip(axes, panels, strict=False):
            _draw_panel(axis, panel)
        return _svg(figure)


def _draw_panel(axis: Axes, panel: BarPanel) -> None:
    values = [bar.value for bar in panel.bars]
    ends = [max(bar.value, bar.high or 0.0) for bar in panel.bars]
    places = range(len(panel.bars))
    axis.barh(places, values, height=0.65, color=_FILL)
    for place, bar, end in zip(places, panel.bars, ends, strict=True):
        if bar.high is not None:
            axis.errorbar(bar.value, place, xerr=[[0.0], [end - bar.value]], color="#222222", capsize=3, linewidth=1)
        axis.annotate(bar.note, (end, place), xytext=(6, 0), textcoords="offset points", va="center")
    axis.set_title(panel.title, loc="left", fontsize=10)
    axis.set_yticks(places, [bar.label for bar in panel.bars])
    axis.set_ylim(len(panel.bars) - 0.4, -0.6)
    axis.set_xlim(0, 1.3 * (panel.full or max(ends, default=0.0) or 1.0))  # room for the notes
    axis.set_xticks([])
    axis.spines["bottom"].set_visible(False)


def draw_lines(title: str, lines: Sequence[Line], x_axis: str, y_axis: str, notes: Sequence[str] = ()) -> str:
    """`notes` are below. Lines without points are left out."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.5, 4.2 + 0.2 * len(notes)), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        axis = figure.subplots()
        for line in filter(lambda line: line.points, lines):
            style = "--" if line.dashed else "-"
            colour = _COLOURS[line.colour % len(_COLOURS)]
            axis.plot(*zip(*line.points, strict=True), style, marker="o", color=colour, label=line.name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(LogLocator(subs=(1, 2, 5)))
            one.set_minor_locator(LogLocator(subs=()))
            one.set_major_formatter(FuncFormatter(_thousands))
        axis.grid(color="#dddddd")
        axis.set_xlabel(x_axis)
        axis.set_ylabel(y_axis)
        if axis.lines:
            figure.legend(loc="outside right upper", frameon=False)
        else:
            axis.set_axis_off()
        figure.supxlabel("\n".join(textwrap.fill(note, 130) for note in notes), x=0.01, ha="left", fontsize=9)
        return _svg(figure)


def draw_grids(title: str, grids: Sequence[Grid], column_axis: str, row_axis: str) -> str:
    """Grids in pairs, or two pairs in a row where they are narrow: callers give two of each thing."""
    columns, rows = max(len(grid.columns) for grid in grids), max(len(grid.rows) for grid in grids)
    across = 4 if columns <= 3 and len(grids) > 2 else 2
    down = -(-len(grids) // across)
    with mpl.rc_context(_STYLE):
        size = (across * max(3.2, 1.0 + 0.6 * columns), 0.8 + down * (1.0 + 0.3 * rows))
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        axes = figure.subplots(down, across, squeeze=False).flat
        for axis in axes[len(grids) :]:
            axis.set_visible(False)
        for axis, grid in zip(axes, grids, strict=False):
            _draw_grid(axis, grid)
            axis.set_ylabel(row_axis)
        figure.supxlabel(f"{column_axis}; grey: not scored", x=0.01, ha="left", fontsize=9)
        return _svg(figure)


def _draw_grid(axis: Axes, grid: Grid) -> None:
    values = np.array([[grid.values.get((column, row), np.nan) for column in grid.columns] for row in grid.rows])
    colours = mpl.colormaps["Blues"].with_extremes(bad=_NOT_SCORED)
    axis.pcolormesh(values, vmin=0.0, vmax=1.0, cmap=colours, edgecolors="white", linewidth=1)
    for (down, across), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "white" if value > 0.5 else "black"
            axis.text(across + 0.5, down + 0.5, f"{value:.2f}", ha="center", va="center", color=ink)
    axis.set_title(grid.title, loc="left", fontsize=9)
    axis.set_xticks(np.arange(len(grid.columns)) + 0.5, grid.columns)
    axis.set_yticks(np.arange(len(grid.rows)) + 0.5, grid.rows)
    axis.invert_yaxis()
    axis.tick_params(length=0)


def _thousands(value: float, _: object) -> str:
    return f"{value / 1_000:,g}K" if value >= 1_000 else f"{value:g}"


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
