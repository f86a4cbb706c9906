"""One prediction's row, and what rows come to: means under both scorers, with what they leave out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.results import Row
from benchmarks.harness.statistics import mean_estimate
from benchmarks.infinitebench.post_process import post_process
from benchmarks.infinitebench.records import Label
from benchmarks.infinitebench.score import score_prediction
from benchmarks.infinitebench.tasks import AGGREGATES, INF_TASKS, SCORERS


def score_row(task: str, output: str, labels: Sequence[Label], *, post_processed: bool) -> dict[str, Any]:
    """Both scores of an output, and the rules that gave them."""
    prediction = post_process(task, output) if post_processed else output
    row: dict[str, Any] = {"task": task, "output": output, "post_processed": post_processed, "scorer_error": ""}
    for scorer in SCORERS:
        mark = score_prediction(scorer, task, prediction, labels)
        row |= {scorer: round(mark.value, 6), f"{scorer}_rule": mark.rule}
        row["scorer_error"] = row["scorer_error"] or mark.error
    return row


def summary_lines(rows: Sequence[Row], unscored: Mapping[str, int]) -> list[str]:
    """A line per task; `unscored` counts failures by task. Scores: 100 × mean, 95 % interval of a bootstrap."""
    present = [name for name in INF_TASKS if unscored.get(name) or any(row["task"] == name for row in rows)]
    by_task = {name: [row for row in rows if row["task"] == name] for name in present}
    lines = [
        f"{'task':18} {'scored':>6} {'unsc.':>5} {'empty':>5} {'err.':>4} {'words':>5}  lenient, upstream (100 × mean)"
    ]
    for name, group in by_task.items():
        empty = sum(not row["output"].strip() for row in group)
        errors = sum(bool(row["scorer_error"]) for row in group)
        words = statistics.median(len(row["output"].split()) for row in group) if group else 0
        label = task_label(name, group)
        counts = f"{label:18} {len(group):>6} {unscored.get(name, 0):>5} {empty:>5} {errors:>4} {words:>5.0f}"
        lines.append(f"{counts}  " + ", ".join(_score(group, scorer) for scorer in SCORERS))
    return [*lines, *_aggregate_lines(by_task)]


def task_label(name: str, rows: Sequence[Row]) -> str:
    """A part of a task, or one of another length than published, is never called by the task's name alone."""
    task = INF_TASKS[name]
    label = "/".join([task.label, *sorted({row["length"] for row in rows if row.get("length")})])
    return label if len(rows) == task.items else f"{label}[{len(rows)}]"


def _score(rows: Sequence[Row], scorer: str) -> str:
    estimate = mean_estimate([100 * row[scorer] for row in rows])
    return f"{estimate.value:6.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _aggregate_lines(by_task: Mapping[str, Sequence[Row]]) -> list[str]:
    lines = []
    for name, tasks in AGGREGATES.items():
        if len(tasks) > 1 and all(by_task.get(task) for task in tasks):
            means = [statistics.fmean(statistics.fmean(100 * r[s] for r in by_task[t]) for t in tasks) for s in SCORERS]
            whole = all(task_label(task, by_task[task]) == INF_TASKS[task].label for task in tasks)
            label = name if whole else f"{name}, of parts"
            lines.append(f"{label:48} " + ", ".join(f"{mean:6.2f}" for mean in means))
    return lines
