"""A pause, a job's history and a list of jobs as lines for people, and a pause as one object for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.documents.document import LONE_SURROGATE, Document
from pipeline.findings.finding import Finding
from pipeline.run.checkpoints import Checkpoint, RunPaused
from pipeline.run.edits import parts
from serving.cli.show.answer import finding_lines, printable
from serving.jobs.events import progress_text
from serving.jobs.job import LOCAL_OWNER, Job, JobRequest, JobState

_GIST_CHARS = 70
_QUESTION_CHARS = 60


def paused_lines(paused: RunPaused, document: Document) -> Iterator[str]:
    """What was found so far, and how to go on."""
    at = paused.checkpoint
    yield f"Paused before step {at.number} ({at.name}) of {spell_id(paused.run_id)}."
    found = [part for part in parts(paused.state) if isinstance(part, Finding)]
    if found:
        yield f"Found so far: {len(found)}"
        for finding in found:
            yield from finding_lines(finding, document)
    else:
        yield from state_text(paused.checkpoint).splitlines()
    yield ""
    yield f"To edit this: longfold jobs edit {spell_id(paused.run_id)}"
    yield f"To go on:     longfold jobs resume {spell_id(paused.run_id)}"


def paused_record(paused: RunPaused) -> dict[str, Any]:
    at = paused.checkpoint
    return {
        "job": spell_id(paused.run_id),
        "step": at.number,
        "before": at.name,
        "state": json.loads(at.edited or at.state),
    }


def state_text(checkpoint: Checkpoint) -> str:
    """What a person edits: the same text when it is read back, with what could upset a terminal in JSON's escapes."""
    text = json.dumps(json.loads(checkpoint.edited or checkpoint.state), ensure_ascii=False, indent=2)
    return "".join(character if _is_shown(character) else _escaped(character) for character in text)


def _is_shown(character: str) -> bool:
    return printable(character) == character and not LONE_SURROGATE.match(character)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def job_lines(job: Job, checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """What was asked, what became of it, and the state before each of its steps."""
    request = job.request
    yield f"Job {spell_id(job.id)}, {_standing(job, checkpoints[-1] if checkpoints else None)}"
    yield f"Question: {printable(_question(request))}"
    yield f"Document: {_documents(request)}"
    yield f"Strategy: {request.strategy}"
    if job.owner != LOCAL_OWNER:
        yield f"Owner:    {printable(job.owner)}"
    if job.result is not None:
        answer = job.result.get("answer") or job.result.get("text") or "The document does not say."
        yield f"Answer:   {printable(answer)}"
    if job.error is not None:
        yield f"Error:    {printable(job.error.get('message', ''))}"
    if checkpoints:
        yield f"{'step':>4}  {'before':<10} state"
    for at in checkpoints:
        marks = ["edited"] * (at.edited is not None) + [f"from {spell_id(at.origin)}"] * bool(at.origin)
        notes = f" ({', '.join(marks)})" if marks else ""
        yield f"{at.number:>4}  {at.name:<10} {_gist(at)}{notes}"


def job_row(job: Job, last: Checkpoint | None) -> str:
    """One line of a list."""
    created = datetime.fromtimestamp(job.created_unix_s).astimezone().strftime("%Y-%m-%d %H:%M")
    question = printable(_cut(_question(job.request), _QUESTION_CHARS))
    names = ", ".join(printable(Path(name).name) for name in _names(job.request))
    return f"{spell_id(job.id)}  {created}  {_standing(job, last):<28}  {question}" + (f" ({names})" if names else "")


def spell_id(job_id: str) -> str:
    """As the API spells it."""
    return f"job_{job_id}"


def _standing(job: Job, last: Checkpoint | None) -> str:
    if job.state is JobState.COMPLETED or last is None:
        far = progress_text(job.progress) if job.state is JobState.RUNNING else ""
        return f"{job.state} ({far})" if far else job.state.value
    return f"{job.state} before {last.name} (step {last.number})"


def _question(request: JobRequest) -> str:
    """Of a chat, its last message."""
    return request.question or (request.messages[-1].get("content", "") if request.messages else "")


def _names(request: JobRequest) -> list[str]:
    return [name for ref in request.documents for name in ([source[0] for source in ref.sources] or [ref.name])]


def _documents(request: JobRequest) -> str:
    return ", ".join(printable(name) for name in dict.fromkeys(_names(request)))


def _gist(checkpoint: Checkpoint) -> str:
    """How much there is of what."""
    state = json.loads(checkpoint.edited or checkpoint.state)
    notes = [
        f"{len(value)} {name}" if isinstance(value, list | dict) else f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in state.items()
    ]
    return printable(_cut(", ".join(notes), _GIST_CHARS))


def _cut(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"
