"""Lines over logarithmic axes as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report.svg_page import svg_page, svg_text

_WIDTH, _HEIGHT = 460, 300
"""Of the area between the axes."""
_LEFT, _TOP, _RIGHT, _BOTTOM = 80, 56, 290, 60
_LINE = 18
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by the colour blind too (Okabe and Ito)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    """Both above 0."""
    colour: int = 0
    dashed: bool = False


def draw_lines(title: str, lines: Sequence[Line], x_axis: str, y_axis: str, notes: Sequence[str] = ()) -> str:
    """`notes` stand below. Lines without points are left out."""
    drawn = [line for line in lines if line.points]
    bottom = _TOP + _HEIGHT
    parts = [svg_text(12, 24, title, size=15), svg_text(12, _TOP - 12, y_axis)]
    if drawn:
        x_scale = _Scale([x for line in drawn for x, _ in line.points], _LEFT, _LEFT + _WIDTH)
        y_scale = _Scale([y for line in drawn for _, y in line.points], bottom, _TOP)
        for value in x_scale.ticks():
            x = x_scale.place(value)
            parts += [_rule(x, _TOP, x, bottom), svg_text(x, bottom + 16, _number(value), anchor="middle")]
        for value in y_scale.ticks():
            y = y_scale.place(value)
            parts += [_rule(_LEFT, y, _LEFT + _WIDTH, y), svg_text(_LEFT - 6, y + 4, _number(value), anchor="end")]
        for number, line in enumerate(drawn):
            parts += _draw_line(number, line, x_scale, y_scale)
    parts.append(svg_text(_LEFT + _WIDTH / 2, bottom + 36, x_axis, anchor="middle"))
    parts += [svg_text(12, bottom + _BOTTOM + _LINE * place, note) for place, note in enumerate(notes)]
    width, height = _LEFT + _WIDTH + _RIGHT, bottom + _BOTTOM + _LINE * len(notes)
    return svg_page(width, height, parts)


class _Scale:
    """Logarithmic, from whole steps below the least value to above the most."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._start, self._end = start, end
        self._steps = [m * 10.0**e for e in range(-6, 10) for m in (1, 2, 5)]
        least, most = min(values), max(values)
        below = [step for step in self._steps if step <= least] or self._steps[:1]
        above = [step for step in self._steps if step >= most and step > below[-1]] or self._steps[-1:]
        self._low, self._high = below[-1], above[0]

    def place(self, value: float) -> float:
        share = math.log(value / self._low) / math.log(self._high / self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Every 1, 2 and 5, or the powers of ten where those would be too many."""
        inside = [step for step in self._steps if self._low <= step <= self._high]
        powers = [step for step in inside if math.log10(step).is_integer()]
        return powers if len(inside) > 9 and len(powers) > 1 else inside


def _draw_line(number: int, line: Line, x_scale: _Scale, y_scale: _Scale) -> list[str]:
    """`number` is the line's place in the legend."""
    colour, dash = _COLOURS[line.colour % len(_COLOURS)], "6 4" if line.dashed else "none"
    places = [(x_scale.place(x), y_scale.place(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    parts = [f'<polyline points="{path}" {style}/>']
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    y = _TOP + 10 + _LINE * number
    x = _LEFT + _WIDTH + 14
    parts.append(f'<polyline points="{x},{y} {x + 26},{y}" {style}/>')
    return [*parts, svg_text(x + 32, y + 4, line.name)]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value / 1_000:,g}K"
    return f"{value:g}"
