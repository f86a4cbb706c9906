"""Predictions that somebody else's run left as JSON lines, scored without a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.results import Row
from benchmarks.infinitebench.records import Label, parse_labels, read_records
from benchmarks.infinitebench.summary import score_row, summary_lines
from benchmarks.infinitebench.tasks import find_task
from pipeline.errors import CallerError

_OUTPUT = ("prediction", "pred", "output")
_LABELS = ("ground_truth", "label", "labels", "answer")
_WITH_LETTER = ("code_debug", "longbook_choice_eng")


def score_predictions(path: Path, task: str, data: Path | None, *, post_processed: bool) -> tuple[list[Row], list[str]]:
    """Rows and report of a file with an output per line (`prediction`, `pred` or `output`).

    Labels are in the same line (`ground_truth`, `label`, `labels` or `answer`) or, by `id`, in the task's file in the
    folder `data`. A line without an output, or whose output is null, is a failed call: counted, not scored.
    """
    name = find_task(task).name
    known = {str(record.id): record.labels for record in read_records(data, name)} if data else {}
    rows: list[Row] = []
    unscored = 0
    for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        fields = _parse(line, path, number)
        output = _first(fields, _OUTPUT)
        if output is None:
            unscored += 1
            continue
        labels = _labels(fields, known, name, path, number)
        rows.append(
            {"id": fields.get("id", number)} | score_row(name, str(output), labels, post_processed=post_processed)
        )
    when = "after" if post_processed else "without"
    return rows, [f"{path.name}, {when} post-processing", *summary_lines(rows, {name: unscored})]


def _parse(line: str, path: Path, number: int) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise CallerError(f"Line {number} of {path} is no JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise CallerError(f"Line {number} of {path} is no JSON object.")
    return fields


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _labels(
    fields: Mapping[str, Any], known: Mapping[str, tuple[Label, ...]], task: str, path: Path, number: int
) -> tuple[Label, ...]:
    given = known.get(str(fields.get("id"))) or _first(fields, _LABELS)
    try:
        labels = parse_labels(given, fields.get("options") or ())
    except ValueError as error:
        raise CallerError(f"Line {number} of {path} has no label that can be used: {error}.") from error
    if task in _WITH_LETTER and len(labels) != 2:
        raise CallerError(f"Line {number} of {path}: a label of {task} is [text, letter]; name the folder with --data.")
    return labels
