"""Tables and pictures of asked questions, one group of rows per way of asking; shared by the suites that ask."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.data.items import KINDS
from benchmarks.harness.pairs import METRICS, difference, pair_rows
from benchmarks.harness.results import Row, made_by
from benchmarks.harness.statistics import auroc, calibration_error, mean_estimate
from benchmarks.harness.variants import COLLECT
from benchmarks.report.charts import Bar, BarPanel, draw_bars

Groups = Mapping[str, Sequence[Row]]


def group_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """By way of asking, in the order of the file; what was asked only to collect findings is no answer."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["variant"] != COLLECT:
            groups.setdefault(row["variant"], []).append(row)
    return groups


def table_lines(groups: Groups, failed: Sequence[str]) -> list[str]:
    """A line per group. ECE and AUROC are of the answers' probability; "evidence" is of answered questions."""
    head = (
        f"{'':22} {'right':>12} {'absent right':>13} {'evidence':>12} {'wrong':>6} {'abst.':>6} {'unsc.':>6} "
        f"{'ECE':>6} {'AUROC':>6}"
    )
    return [head, *(_table_line(name, group, failed) for name, group in groups.items())]


def _table_line(name: str, rows: Sequence[Row], failed: Sequence[str]) -> str:
    present = [row for row in rows if row["kind"] != "absent"]
    absent = [row for row in rows if row["kind"] == "absent"]
    answered = [row for row in rows if row["found"]]
    stated = [row for row in present if row["found"]]
    probabilities = [row["probability"] for row in answered]
    right = [_is_right(row) for row in answered]
    return (
        f"{name:22} {_share([r['verdict'] == 'right' for r in present]):>12} "
        f"{_share([r['verdict'] == 'right' for r in absent]):>13} {_share([bool(r['states']) for r in stated]):>12} "
        f"{sum(r['verdict'] == 'wrong' for r in rows):>6} {sum(r['verdict'] == 'abstained' for r in rows):>6} "
        f"{sum(key.startswith(f'{name}/') for key in failed):>6} "
        f"{calibration_error(probabilities, right):>6.3f} {auroc(probabilities, right):>6.3f}"
    )


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values)}/{len(values)} {sum(values) / len(values):.0%}" if values else "none"


def mean_lines(groups: Groups, metrics: Sequence[str]) -> list[str]:
    """Means with 95 % intervals; a metric that no row of a group has is left out."""
    lines = []
    for name, rows in groups.items():
        for metric in metrics:
            values = [value for row in rows if (value := METRICS[metric](row)) is not None]
            if values:
                lines.append(f"  {name:22} {metric:20} {mean_estimate(values)}")
    return lines


def difference_lines(base: str, groups: Groups, metrics: Sequence[str]) -> list[str]:
    """`base` minus each other group on the same questions; a difference counts if its interval leaves out 0."""
    lines = []
    for name, rows in groups.items():
        pairs = pair_rows(groups.get(base, []), rows) if name != base else []
        for metric in metrics:
            estimate = difference(pairs, METRICS[metric])
            if estimate:
                lines.append(f"  {base} - {name:22} {metric:20} {estimate}")
    return lines


def kind_lines(groups: Groups) -> list[str]:
    """Right of asked, by kind of question, for real text and for Chinese."""
    lines = []
    for name, rows in groups.items():
        parts = {str(kind): [row for row in rows if row["kind"] == kind] for kind in KINDS}
        parts |= {"real text": [row for row in rows if row["real"]]}
        parts |= {"zh": [row for row in rows if row["language"] == "zh"]}
        shares = [f"{kind} {_share([r['verdict'] == 'right' for r in part])}" for kind, part in parts.items() if part]
        lines.append(f"  {name:22} " + ", ".join(shares))
    return lines


def draw_answers(header: Row, groups: Groups, prices: Sequence[str]) -> str:
    """Right answers of each way, and below them the means of what each question cost."""
    panels = [right_panel(groups)]
    for price in prices:
        means = {
            name: statistics.fmean(values)
            for name, rows in groups.items()
            if (values := [value for row in rows if (value := METRICS[price](row)) is not None])
        }
        bars = [Bar(label=name, value=mean, note=f"{mean:,.0f}") for name, mean in means.items()]
        panels += [BarPanel(title=f"{price.replace('_', ' ')} per question", bars=bars)] if bars else []
    return draw_bars(made_by(header), panels)


def right_panel(groups: Groups) -> BarPanel:
    """The share of right answers of each way."""
    bars = [
        Bar(label=name, value=statistics.fmean(_is_right(row) for row in rows), note=right_of(rows))
        for name, rows in groups.items()
    ]
    return BarPanel(title="right answers", full=1.0, bars=bars)


def right_of(rows: Sequence[Row]) -> str:
    return f"{sum(_is_right(row) for row in rows)} of {len(rows)}"


def _is_right(row: Row) -> bool:
    return bool(row["verdict"] == "right")
