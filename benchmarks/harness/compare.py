"""Two results files side by side: what differs in how they were made, and in what they measured, item by item."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.pairs import METRICS, Metric, difference, group_of, pair_rows
from benchmarks.harness.results import Row, read_results, scored, unscored_keys
from pipeline.errors import CallerError

_MADE = ("model", "settings", "gate", "calibration", "hardware", "versions")
_HOW = ("commit", "dirty")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One file."""

    path: Path
    header: Mapping[str, Any]
    rows: Sequence[Row]
    failed: int


def compare_results(first: Path, second: Path) -> list[str]:
    """Lines for people. Raises CallerError where two files have nothing in common."""
    a, b = _read(first), _read(second)
    if a.header["suite"] != b.header["suite"]:
        raise CallerError(f"{a.header['suite']} and {b.header['suite']} measure different things.")
    lines = [_title("A", a), _title("B", b), "", *_header_lines(a.header, b.header)]
    compared = [line for part in _parts(a.rows, b.rows) for line in _part_lines(*part)]
    if not compared:
        raise CallerError(f"{first} and {second} have no item in common; were they run with the same settings?")
    return [*lines, "", "A minus B on the items that both have (mean, 95 % interval of a paired bootstrap):", *compared]


def _read(path: Path) -> _Measured:
    try:
        header, rows = read_results(path)
    except (OSError, json.JSONDecodeError, IndexError) as error:
        raise CallerError(f"{path} is no results file: {error}.") from error
    return _Measured(path=path, header=header, rows=scored(rows), failed=len(unscored_keys(rows)))


def _title(letter: str, one: _Measured) -> str:
    header = one.header
    return (
        f"{letter}  {header['suite']} · {header['model']['name']} · {header['date']} · {len(one.rows)} measured, "
        f"{one.failed} unscored · {one.path.name}"
    )


def _header_lines(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Fields that are not equal. With other hardware or versions a difference in time says little."""
    flat = [dict(_flatten({name: header.get(name) for name in (*_HOW, *_MADE)})) for header in (a, b)]
    names = dict.fromkeys([*flat[0], *flat[1]])
    lines = [f"  {name}: {flat[0].get(name)} | {flat[1].get(name)}" for name in names if _differs(name, flat)]
    return ["made differently in:", *lines] if lines else ["made alike"]


def _differs(name: str, flat: Sequence[Mapping[str, Any]]) -> bool:
    return name != "hardware.load_before" and flat[0].get(name) != flat[1].get(name)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parts(a: Sequence[Row], b: Sequence[Row]) -> Iterator[tuple[str, list[Row], list[Row]]]:
    """Rows that can be compared: of one task, and of one way of asking, or of the only one that each file has."""
    ways = [list(dict.fromkeys(group_of(row) for row in rows)) for rows in (a, b)]
    pairs = [(way, way) for way in ways[0] if way in ways[1]]
    if not pairs and len(ways[0]) == len(ways[1]) == 1:
        pairs = [(ways[0][0], ways[1][0])]
    for one, other in pairs:
        for task in dict.fromkeys(row.get("task") for row in a):
            way = one if one == other else f"{one} | {other}"
            name = " ".join(part for part in (way, task) if part) or "all"
            yield name, _of(a, one, task), _of(b, other, task)


def _of(rows: Sequence[Row], way: str, task: str | None) -> list[Row]:
    return [row for row in rows if group_of(row) == way and row.get("task") == task]


def _part_lines(name: str, a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    pairs = pair_rows(a, b)
    lines = []
    for metric, read in METRICS.items():
        estimate = difference(pairs, read)
        if estimate:
            known = [pair for pair in pairs if all(read(row) is not None for row in pair)]
            means = [_mean([pair[side] for pair in known], read) for side in (0, 1)]
            lines.append(f"  {metric:20} A {means[0]:>10,.3f}   B {means[1]:>10,.3f}   A - B {estimate}")
    alone = [f"{len(rows) - len(pairs)} of {letter}" for letter, rows in (("A", a), ("B", b)) if len(rows) > len(pairs)]
    note = f", without a partner: {', '.join(alone)}" if alone else ""
    return ["", f"{name}: {len(pairs)} pairs{note}", *lines] if lines else []


def _mean(rows: Sequence[Row], read: Metric) -> float:
    return statistics.fmean(value for row in rows if (value := read(row)) is not None)
