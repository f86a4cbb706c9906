"""What every picture is made of: SVG text without a drawing library, readable in every browser."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def svg_page(width: int, height: int, parts: Sequence[str]) -> str:
    """The parts on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def svg_text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", fill: str = "black") -> str:
    """`anchor` is start, middle or end; `y` is the base line."""
    place = f'x="{round(x, 1)}" y="{round(y, 1)}"'
    return f'<text {place} font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
