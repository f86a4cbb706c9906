"""What `longfold jobs list | show | edit | fork | resume | cancel | delete` do.

Who sits at the machine and may read its database sees the jobs of all owners.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import typer

from pipeline.documents.load import STDIN
from pipeline.errors import CallerError, LongfoldError, NothingToResume, UnknownName, WrongState
from pipeline.run.checkpoints import Checkpoint
from serving.cli.ask import AskOptions, print_lines, resume_job
from serving.cli.rehearse_edit import rehearse_edit
from serving.cli.show.answer import printable
from serving.cli.show.job import job_lines, job_row, spell_id, state_text
from serving.jobs.job import LOCAL_OWNER, Job, JobState
from serving.jobs.run_here import LocalStore, open_store
from serving.jobs.steps import read_checkpoints
from serving.jobs.store import JobStore
from serving.session import open_journal
from serving.settings import Settings

_MAX_LISTED = 20
_MAX_SEARCHED = 1000
"""Of the latest jobs, in which the one to resume is looked for."""

Found = TypeVar("Found")


def list_jobs(settings: Settings) -> None:
    """The latest, newest first."""

    async def read(store: LocalStore) -> list[str]:
        rows = []
        for job in await store.jobs.list_all(limit=_MAX_LISTED):
            steps = [] if job.state is JobState.COMPLETED else await _checkpoints(store.jobs, job)
            rows.append(job_row(job, steps[-1] if steps else None))
        return rows

    print_lines(_in_store(settings, read))


def show_job(settings: Settings, spelled: str, at: int | None) -> None:
    """The history for people; one state as JSON, as it can be given back."""

    async def read(store: LocalStore) -> tuple[Job, list[Checkpoint]]:
        job = await _find(store.jobs, spelled)
        return job, await _checkpoints(store.jobs, job)

    job, checkpoints = _in_store(settings, read)
    if at is None:
        print_lines(job_lines(job, checkpoints))
    else:
        typer.echo(state_text(_at(job, checkpoints, at)))


def edit_job(settings: Settings, spelled: str, file: str, at: int | None, *, fork: bool = False) -> None:
    """Take the edited state from `file`, or from an editor; it is tried before it is kept."""

    async def read(store: LocalStore) -> tuple[Job, list[Checkpoint]]:
        job = await _find(store.jobs, spelled)
        return job, await _checkpoints(store.jobs, job)

    async def keep(store: LocalStore) -> Job:
        document = await store.files.load_document(job.request.documents)
        await rehearse_edit(job, edited, document, settings)
        if fork:
            return _still_there(await store.jobs.fork(job.id, edited, checkpoints))
        return _still_there(await store.jobs.edit(job.id, edited))

    job, checkpoints = _in_store(settings, read)
    before = _at(job, checkpoints, at)
    if not fork and job.state in (JobState.QUEUED, JobState.RUNNING):
        raise WrongState(f"The job is {job.state}; wait for its end, or cancel it, before you edit it.")
    draft = settings.cache_dir / f"{job.id}-{before.number}.json"
    text = _read(file) if file else _ask_editor(state_text(before), draft)
    edited = replace(before, edited=None if _says_the_same(text, before.state) else text)
    try:
        kept = _in_store(settings, keep)
    except LongfoldError:
        if not file:
            command = f"longfold jobs {'fork' if fork else 'edit'} {spell_id(job.id)} --at {before.number}"
            typer.echo(f"Your text is kept in {draft}; to fix it: {command}", err=True)
        raise
    if not file:
        draft.unlink()
    name = spell_id(kept.id)
    what = f"Job {name}, forked from {spell_id(job.id)}," if fork else f"Job {name}"
    print_lines(
        [
            f"{what} goes on from what you wrote before step {before.number} ({before.name}).",
            f"To go on: longfold jobs resume {name}",
        ]
    )


def resume(settings: Settings, spelled: str, options: AskOptions) -> int:
    """Run a job that rests, here; without an id the latest of the command line that has no answer."""

    async def read(store: LocalStore) -> Job:
        if spelled:
            return await _find(store.jobs, spelled)
        for job in await store.jobs.list_jobs(LOCAL_OWNER, limit=_MAX_SEARCHED):
            if job.request.kind == "run" and job.state is not JobState.COMPLETED:
                return job
        raise NothingToResume

    job = _in_store(settings, read)
    if job.request.kind == "chat":
        raise WrongState("The job is a chat with the model itself, and goes on only at the API that took it.")
    if job.state is JobState.COMPLETED:
        raise WrongState("The job is completed; there is nothing to resume.")
    if not settings.model and job.request.model:
        settings = settings.model_copy(update={"model": job.request.model})
    return resume_job(job, options, settings)


def cancel(settings: Settings, spelled: str) -> None:
    async def stop(store: LocalStore) -> Job:
        job = await _find(store.jobs, spelled)
        return _still_there(await store.jobs.request_cancel(job.id, job.owner))

    job = _in_store(settings, stop)
    what = "is being cancelled" if job.state is JobState.RUNNING else f"is {job.state}"
    print_lines([f"Job {spell_id(job.id)} {what}."])


def delete(settings: Settings, spelled: str) -> None:
    async def remove(store: LocalStore) -> Job:
        job = await _find(store.jobs, spelled)
        await store.jobs.delete(job.id, job.owner)
        with open_journal(settings) as journal:
            journal.forget_runs([job.id])
        return job

    print_lines([f"Job {spell_id(_in_store(settings, remove).id)} is deleted."])


def _in_store(settings: Settings, work: Callable[[LocalStore], Awaitable[Found]]) -> Found:
    async def open_and_work() -> Found:
        async with open_store(settings) as store:
            return await work(store)

    return asyncio.run(open_and_work())


async def _find(jobs: JobStore, spelled: str) -> Job:
    """The job with this id, in any of its spellings, or with the only id that begins so."""
    beginning = spelled.removeprefix("job_").removeprefix("resp_").removeprefix("chatcmpl-").upper()
    found = await jobs.find_any(beginning)
    if not found:
        raise NothingToResume(f"No job {spelled!r} is known; `longfold jobs list` shows the latest.")
    if len(found) > 1:
        raise UnknownName(f"Several jobs have an id that begins with {spelled!r}; give more of it.")
    return found[0]


async def _checkpoints(jobs: JobStore, job: Job) -> list[Checkpoint]:
    return read_checkpoints(job, await jobs.steps(job.id))


def _still_there(job: Job | None) -> Job:
    if job is None:
        raise NothingToResume("The job was deleted.")
    return job


def _says_the_same(text: str, state: str) -> bool:
    """Who writes back what the run had come to takes an edit back."""
    try:
        return bool(json.loads(text) == json.loads(state))
    except json.JSONDecodeError:
        return False


def _at(job: Job, checkpoints: list[Checkpoint], at: int | None) -> Checkpoint:
    if not checkpoints:
        raise NothingToResume(f"Job {spell_id(job.id)} has come to no step yet, so there is no state of it.")
    if at is None:
        return checkpoints[-1]
    found = next((checkpoint for checkpoint in checkpoints if checkpoint.number == at), None)
    if found is None:
        last = checkpoints[-1].number
        raise UnknownName(f"Job {spell_id(job.id)} has no step {at}; its steps are 1 to {last}.")
    return found


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"The state cannot be read from {printable(file)}: {error}.") from error


def _ask_editor(text: str, draft: Path) -> str:
    """What the person leaves in the draft. One that did not fit, or was not used, is opened again."""
    if not sys.stdin.isatty():
        raise CallerError("There is no terminal to edit on; give the edited state as a FILE, or - for standard input.")
    if not draft.exists():
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(f"{text}\n", encoding="utf-8")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        subprocess.run([*shlex.split(editor), str(draft)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise CallerError(f"The editor {editor!r} did not work ({error}); set EDITOR, or give a FILE.") from error
    return draft.read_text(encoding="utf-8")
