"""Measurements as JSON lines: a header, then one line each, written as they are made.

A run that is stopped keeps what it measured, and a resumed one leaves out what is there. What failed is a line with
`unscored` and the reason: counted and shown, never scored as zero, and tried again on resume.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ReplicaUnavailable

FAILURES_TO_STOP = 3

Row = Mapping[str, Any]
"""One line of a results file: an edge format, read by `report` functions only."""


class ResultsFile:
    """Appends measurements; each has a key that is unique in its file."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Create the file with its header, or go on with the one that is there."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(json.dumps(header, ensure_ascii=False) + "\n", "utf-8")
        _drop_cut_line(path)
        self.header, rows = read_results(path)
        self._failed_in_a_row = 0
        self._done = {str(row["key"]) for row in scored(rows)}

    def has(self, key: str) -> bool:
        return key in self._done

    def add(self, key: str, **fields: Any) -> None:
        self._append({"key": key, **fields})
        self._failed_in_a_row = 0
        self._done.add(key)

    def add_unscored(self, key: str, reason: str) -> None:
        """Note a failure. Raises ReplicaUnavailable when many follow one another: the rest would fail too."""
        self._append({"key": key, "unscored": reason})
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= FAILURES_TO_STOP:
            raise ReplicaUnavailable(f"{FAILURES_TO_STOP} measurements in a row failed, the last: {reason}")

    def _append(self, row: Row) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_results(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Header and rows; a last line that was cut short is left out."""
    lines = [line for line in path.read_text("utf-8").split("\n") if line]  # answers may hold other line separators
    rows: list[Row] = []
    for place, line in enumerate(lines[1:], start=2):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if place < len(lines):
                raise
    return json.loads(lines[0]), rows


def _drop_cut_line(path: Path) -> None:
    """A run that was killed while it wrote leaves half a line; what is appended must not be glued to it."""
    text = path.read_text("utf-8")
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], "utf-8")


def scored(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if "unscored" not in row]


def unscored_keys(rows: Sequence[Row]) -> list[str]:
    """Keys that failed and were not measured later, in order."""
    done = {row["key"] for row in scored(rows)}
    return list(dict.fromkeys(str(row["key"]) for row in rows if "unscored" in row and row["key"] not in done))


def made_by(header: Mapping[str, Any]) -> str:
    """Model and commit, as pictures are headed."""
    return f"{header['model']['name']}, commit {header['commit'][:12]}"


_COMPARED = ("suite", "model", "settings", "gate", "calibration")


def find_resumable(folder: Path, header: Mapping[str, Any]) -> Path | None:
    """The newest file with the same sizes, model and rules; the code may have changed since."""
    for path in sorted(folder.glob(f"{header['suite']}-*.jsonl"), reverse=True):
        found, _ = read_results(path)
        if all(found.get(name) == header.get(name) for name in _COMPARED):
            return path
    return None
