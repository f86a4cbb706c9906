"""A paused run, a run's history and a list of runs as lines for people, and a pause as one object for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.dispatch.journal import RunRecord
from pipeline.documents.document import LONE_SURROGATE, Document
from pipeline.findings.finding import Finding
from pipeline.run.checkpoints import Checkpoint, RunPaused
from pipeline.run.edits import parts
from serving.cli.show.answer import finding_lines, printable

_GIST_CHARS = 70
_QUESTION_CHARS = 60


def paused_lines(paused: RunPaused, document: Document) -> Iterator[str]:
    """What was found so far, and how to go on."""
    yield str(paused)
    found = [part for part in parts(paused.state) if isinstance(part, Finding)]
    if found:
        yield f"Found so far: {len(found)}"
        for finding in found:
            yield from finding_lines(finding, document)
    else:
        yield from state_text(paused.checkpoint).splitlines()
    yield ""
    yield f"To edit this: longfold runs edit {paused.run_id}"
    yield f"To go on:     longfold ask --resume {paused.run_id}"


def paused_record(paused: RunPaused) -> dict[str, Any]:
    at = paused.checkpoint
    return {"run": paused.run_id, "step": at.number, "before": at.name, "state": json.loads(at.edited or at.state)}


def state_text(checkpoint: Checkpoint) -> str:
    """What a person edits: the same text when it is read back, with what could upset a terminal in JSON's escapes."""
    text = json.dumps(json.loads(checkpoint.edited or checkpoint.state), ensure_ascii=False, indent=2)
    return "".join(character if _is_shown(character) else _escaped(character) for character in text)


def _is_shown(character: str) -> bool:
    return printable(character) == character and not LONE_SURROGATE.match(character)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def run_lines(record: RunRecord, checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """What was asked, what became of it, and the state before each of its steps."""
    request = record.request["request"]
    yield f"Run {record.run_id}, {_standing(record, checkpoints[-1] if checkpoints else None)}"
    yield f"Question: {printable(request['question'])}"
    yield f"Document: {', '.join(printable(path) for path in record.request['paths'])}"
    yield f"Strategy: {request['strategy']}"
    if record.answer is not None:
        yield f"Answer:   {printable(record.answer) or 'The document does not say.'}"
    if checkpoints:
        yield f"{'step':>4}  {'before':<10} state"
    for at in checkpoints:
        marks = ["edited"] * (at.edited is not None) + [f"from run {at.origin}"] * bool(at.origin)
        told = f" ({', '.join(marks)})" if marks else ""
        yield f"{at.number:>4}  {at.name:<10} {_gist(at)}{told}"


def run_row(record: RunRecord, last: Checkpoint | None) -> str:
    """One line of a list."""
    started = datetime.fromtimestamp(record.started_s).astimezone().strftime("%Y-%m-%d %H:%M")
    question = printable(_cut(record.request["request"]["question"], _QUESTION_CHARS))
    names = ", ".join(printable(Path(path).name) for path in record.request["paths"])
    return f"{record.run_id}  {started}  {_standing(record, last):<28}  {question} ({names})"


def _standing(record: RunRecord, last: Checkpoint | None) -> str:
    if record.finished_s is not None:
        return "finished"
    if last is None:
        return "not finished"
    return f"{'paused' if last.paused else 'stopped after coming'} before {last.name} (step {last.number})"


def _gist(checkpoint: Checkpoint) -> str:
    """How much there is of what."""
    state = json.loads(checkpoint.edited or checkpoint.state)
    told = [
        f"{len(value)} {name}" if isinstance(value, list | dict) else f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in state.items()
    ]
    return printable(_cut(", ".join(told), _GIST_CHARS))


def _cut(text: str, most_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most_chars else f"{line[: most_chars - 1]}…"
