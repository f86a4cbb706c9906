"""The same item measured twice: which rows belong together, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness.results import Row
from benchmarks.harness.statistics import Estimate, paired_difference

Metric = Callable[[Row], float | None]
"""None where a row does not have it."""


def _right(row: Row) -> float | None:
    return float(row["verdict"] == "right") if "verdict" in row else None


def _right_and_stated(row: Row) -> float | None:
    if "verdict" not in row:
        return None
    return float(row["verdict"] == "right" and (row["kind"] == "absent" or bool(row["states"])))


def _field(name: str) -> Metric:
    """A number, or the share of true values in a list of them."""

    def read(row: Row) -> float | None:
        value = row.get(name)
        if isinstance(value, list) and value and all(isinstance(one, bool) for one in value):
            return sum(value) / len(value)
        return float(value) if isinstance(value, int | float) else None

    return read


def _later_seconds(row: Row) -> float | None:
    """Of questions on a document that was read before: the first depends on who asked it first."""
    return _field("seconds")(row) if row.get("first") is False else None


_FIELDS = (
    "lenient",
    "upstream",
    "facts",
    "evidence",
    "seconds",
    "first_s",
    "second_s",
    "tokens_per_s",
    "calls_per_s",
    "whole_p50_s",
    "one_token_p50_s",
)
_COSTS = ("calls", "prompt_tokens", "output_tokens")
METRICS: Mapping[str, Metric] = {
    "right": _right,
    "right, evidence too": _right_and_stated,
    "later_seconds": _later_seconds,
    **{name: _field(name) for name in (*_FIELDS, *_COSTS)},
}


def group_of(row: Row) -> str:
    """The way of asking, where a file holds several."""
    return str(row.get("variant") or row.get("strategy") or row.get("side") or "")


def item_of(row: Row) -> str:
    """The key without the way of asking: equal for the same item."""
    return str(row["key"]).removeprefix(f"{group_of(row)}/")


def pair_rows(first: Sequence[Row], second: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of the same item, in the order of the first; a name that two questions share is left out."""
    others = {item_of(row): row for row in second}
    pairs = [(row, others[item_of(row)]) for row in first if item_of(row) in others]
    return [(one, other) for one, other in pairs if all(one.get(f) == other.get(f) for f in ("accepted", "source"))]


def difference(pairs: Sequence[tuple[Row, Row]], metric: Metric) -> Estimate | None:
    """First minus second, over the pairs that both have the metric; None if there are none."""
    values = [(metric(one), metric(other)) for one, other in pairs]
    known = [(a, b) for a, b in values if a is not None and b is not None]
    return paired_difference([a for a, _ in known], [b for _, b in known]) if known else None
