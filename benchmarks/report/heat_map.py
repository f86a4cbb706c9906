"""A heat map as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report.svg_page import svg_page, svg_text

_CELL_WIDTH, _CELL_HEIGHT = 64, 28
_LEFT, _TOP = 90, 70
_PANEL_GAP = 60
_LEAST_WIDTH = 280
"""Of a panel: room for its title over a narrow grid."""
_PAGE_WIDTH = 1120
"""What panels beside one another may take, in pairs."""
_LOW, _HIGH = (253, 231, 200), (8, 64, 129)
"""Light to dark, so that the order survives grey printing and colour blindness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One grid. A cell without a value was not scored and is drawn grey."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Mapping[tuple[str, str], float]
    """By column and row, 0 to 1."""


def draw_panels(title: str, panels: Sequence[Panel], column_axis: str, row_axis: str) -> str:
    """Panels in rows of two or four, as the page takes them: callers give two of each thing."""
    wide = max(_LEAST_WIDTH, _LEFT + max(len(panel.columns) for panel in panels) * _CELL_WIDTH + 20)
    high = max(len(panel.rows) for panel in panels) * _CELL_HEIGHT + _PANEL_GAP + 20
    across = 4 if 4 * wide <= _PAGE_WIDTH and len(panels) > 2 else 2
    parts: list[str] = [svg_text(12, 24, title, size=16)]
    for place, panel in enumerate(panels):
        x, y = place % across * wide, _TOP + place // across * high
        parts += _draw_panel(panel, x, y, column_axis, row_axis)
    return svg_page(across * wide, _TOP + -(-len(panels) // across) * high, parts)


def _draw_panel(panel: Panel, left: int, top: int, column_axis: str, row_axis: str) -> list[str]:
    grid = left + _LEFT
    parts = [svg_text(left + 12, top - 24, panel.title, size=13), svg_text(left + 12, top - 6, row_axis)]
    for across, column in enumerate(panel.columns):
        x = grid + across * _CELL_WIDTH
        parts.append(svg_text(x + _CELL_WIDTH // 2, top - 6, column, anchor="middle"))
        for down, row in enumerate(panel.rows):
            parts += _cell(x, top + down * _CELL_HEIGHT, panel.values.get((column, row)))
    for down, row in enumerate(panel.rows):
        parts.append(svg_text(grid - 8, top + down * _CELL_HEIGHT + 18, row, anchor="end"))
    below = top + len(panel.rows) * _CELL_HEIGHT + 16
    return [*parts, svg_text(left + 12, below, f"{column_axis}; grey: not scored")]


def _cell(x: int, y: int, value: float | None) -> list[str]:
    fill = "#bbbbbb" if value is None else _colour(value)
    box = f'<rect x="{x}" y="{y}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}" fill="{fill}"/>'
    if value is None:
        return [box]
    ink = "white" if value > 0.5 else "black"
    return [box, svg_text(x + _CELL_WIDTH // 2, y + 18, f"{value:.2f}", anchor="middle", fill=ink)]


def _colour(value: float) -> str:
    mixed = (round(low + (high - low) * value) for low, high in zip(_LOW, _HIGH, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
