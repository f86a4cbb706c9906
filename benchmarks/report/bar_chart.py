"""Horizontal bars as SVG."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report.svg_page import svg_page, svg_text

_LEFT, _WIDTH, _RIGHT = 210, 430, 200
_ROW, _TOP, _PANEL_GAP = 26, 64, 54
_FILL, _INK = "#3b6ea8", "#222222"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure, from 0 to `value`."""

    label: str
    value: float
    high: float | None = None
    """Where a whisker ends, for instance at p99."""
    note: str
    """The figure as text, at the right."""


def median_bar(label: str, values: Sequence[float], note: str) -> Bar:
    """Up to the median, with a whisker to the highest; `note` is a format of the median."""
    median = statistics.median(values)
    return Bar(label=label, value=median, high=max(values), note=note.format(median))


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPanel:
    """Bars of one unit, on a scale of their own."""

    title: str
    bars: Sequence[Bar]
    full: float | None = None
    """What a bar of full length stands for; None: the longest of them."""


def draw_bars(title: str, panels: Sequence[BarPanel]) -> str:
    """Panels below one another."""
    parts: list[str] = [svg_text(12, 26, title, size=15)]
    top = _TOP
    for panel in panels:
        most = panel.full or max((max(bar.value, bar.high or 0.0) for bar in panel.bars), default=0.0) or 1.0
        parts.append(svg_text(12, top, panel.title, size=13))
        for place, bar in enumerate(panel.bars):
            parts += _draw_bar(bar, top + 12 + place * _ROW, most)
        top += len(panel.bars) * _ROW + _PANEL_GAP
    return svg_page(_LEFT + _WIDTH + _RIGHT, top, parts)


def _draw_bar(bar: Bar, y: int, most: float) -> list[str]:
    wide = round(_WIDTH * bar.value / most, 1)
    end = round(_LEFT + _WIDTH * max(bar.value, bar.high or 0.0) / most, 1)
    parts = [
        svg_text(_LEFT - 8, y + 13, bar.label, size=12, anchor="end"),
        f'<rect x="{_LEFT}" y="{y}" width="{wide}" height="{_ROW - 8}" fill="{_FILL}"/>',
    ]
    if bar.high is not None:
        middle = y + (_ROW - 8) / 2
        parts.append(f'<path d="M{_LEFT + wide} {middle}H{end}M{end} {y + 4}V{y + 14}" stroke="{_INK}" fill="none"/>')
    return [*parts, svg_text(end + 8, y + 13, bar.note, size=12)]
