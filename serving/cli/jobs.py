"""`longfold jobs`: list, show, edit, fork, resume, cancel, delete, prune; jobs of commands and of the API alike.

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
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pipeline.documents.load import STDIN
from pipeline.errors import CallerError, LongfoldError, NothingToResume, UnknownName, WrongState
from pipeline.run.checkpoints import Checkpoint
from serving.cli.ask import AskOptions, resume_job
from serving.cli.command_settings import command_settings
from serving.cli.errors import errors_as_json
from serving.cli.options import AsJson, MaxSteps, Model, PauseBefore, Updates
from serving.cli.output import print_lines
from serving.cli.show.answer import printable
from serving.cli.show.job import job_lines, job_row, spell_id, state_text
from serving.jobs.job import LOCAL_OWNER, Job, JobState
from serving.settings import Settings

if TYPE_CHECKING:  # the database takes half a second to import
    from serving.jobs.run_here import LocalStore
    from serving.jobs.store import JobStore

_MAX_LISTED = 20
_MAX_SEARCHED = 1000
"""Of the latest jobs, in which the one to resume is looked for."""

Found = TypeVar("Found")
Id = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its beginning.")]
At = Annotated[int | None, typer.Option("--at", metavar="STEP", help="Number of the step; without it, the last.")]
State = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The state as JSON; - for standard input. Without it, on a terminal, your editor."
    ),
]

jobs = typer.Typer(
    no_args_is_help=True,
    help="Jobs, those of the command line and those of the API: list, show, edit, fork, resume, cancel, delete, prune.",
)


@jobs.command("list")
def list_jobs() -> None:
    """Show the latest jobs and their states."""

    async def read(store: LocalStore) -> list[str]:
        rows = []
        for job in await store.jobs.list_all(limit=_MAX_LISTED):
            steps = [] if job.state is JobState.COMPLETED else await _checkpoints(store.jobs, job)
            rows.append(job_row(job, steps[-1] if steps else None))
        return rows

    print_lines(_in_store(command_settings(), read))


@jobs.command("show")
def show_job(job: Id, at: At = None) -> None:
    """Show a job's history; with --at the whole state before that step, as JSON."""
    found, checkpoints = _read_job(command_settings(), job)
    if at is None:
        print_lines(job_lines(found, checkpoints))
    else:
        typer.echo(state_text(_at(found, checkpoints, at)))


@jobs.command("edit")
def edit_job(job: Id, file: State = "", at: At = None) -> None:
    """Replace the state before a step; the job goes on from there when it is resumed."""
    _edit(job, file, at, fork=False)


@jobs.command("fork")
def fork_job(job: Id, file: State = "", at: At = None) -> None:
    """The same in a new job, which pays for no call again that the first has made."""
    _edit(job, file, at, fork=True)


@jobs.command("resume")
def resume(
    job: Annotated[
        str, typer.Argument(metavar="[JOB]", help="The job's id, or its beginning; without one, the latest unfinished.")
    ] = "",
    pause_before: PauseBefore = "",
    max_steps: MaxSteps = None,
    model: Model = None,
    as_json: AsJson = False,
    updates: Updates = False,
) -> None:
    """Go on with a job that was paused, interrupted or failed, here. What was completed is not paid for again."""

    async def read(store: LocalStore) -> Job:
        if job:
            return await _find(store.jobs, job)
        for latest in await store.jobs.list_jobs(LOCAL_OWNER, limit=_MAX_SEARCHED):
            if latest.request.kind == "run" and latest.state is not JobState.COMPLETED:
                return latest
        raise NothingToResume

    as_json = as_json or updates
    options = AskOptions(as_json=as_json, updates=updates, pause_before=pause_before, max_steps=max_steps)
    with errors_as_json(as_json):
        settings = command_settings(model=model)
        found = _in_store(settings, read)
        if found.request.kind == "chat":
            raise WrongState("The job is a chat with the model itself, and goes on only at the API that took it.")
        if found.state is JobState.COMPLETED:
            raise WrongState("The job is completed; there is nothing to resume.")
        if not settings.model and found.request.model:
            settings = settings.model_copy(update={"model": found.request.model})
        code = resume_job(found, options, settings)
    raise typer.Exit(code)


@jobs.command("cancel")
def cancel_job(job: Id) -> None:
    """Stop a job, wherever it runs. What was completed is kept."""

    async def stop(store: LocalStore) -> Job:
        found = await _find(store.jobs, job)
        return _still_there(await store.jobs.request_cancel(found.id, found.owner))

    found = _in_store(command_settings(), stop)
    what = "is being cancelled" if found.state is JobState.RUNNING else f"is {found.state}"
    print_lines([f"Job {spell_id(found.id)} {what}."])


@jobs.command("delete")
def delete_job(job: Id) -> None:
    """Forget a job that has ended, with its history, its result and the completed calls that it alone has used."""
    from serving.session import open_journal

    settings = command_settings()

    async def remove(store: LocalStore) -> Job:
        found = await _find(store.jobs, job)
        await store.jobs.delete(found.id, found.owner)
        return found

    found = _in_store(settings, remove)
    with open_journal(settings) as journal:
        journal.forget_runs([found.id])
    print_lines([f"Job {spell_id(found.id)} is deleted."])


@jobs.command("prune")
def prune_jobs() -> None:
    """Remove jobs, files and completed calls that are older, or more, than the settings keep."""
    from serving.jobs.retention import DeletedJobs, prune_journal, prune_store
    from serving.session import open_journal

    settings = command_settings()

    async def prune(store: LocalStore) -> str:
        stored = await prune_store(store.jobs, store.files, settings)
        with open_journal(settings) as journal:
            calls = await DeletedJobs(store.jobs, journal).forget()
            calls += (await prune_journal(journal, settings)).calls
        return f"Removed {stored.jobs:,} jobs, {stored.files:,} files and {calls:,} completed calls."

    print_lines([_in_store(settings, prune)])


def _edit(spelled: str, file: str, at: int | None, *, fork: bool) -> None:
    """Take the edited state from `file`, or from an editor; it is tried before it is kept."""
    settings = command_settings()
    job, checkpoints = _read_job(settings, spelled)
    before = _at(job, checkpoints, at)
    if not fork and job.state in (JobState.QUEUED, JobState.RUNNING):
        raise WrongState(f"The job is {job.state}; wait for its end, or cancel it, before you edit it.")
    draft = settings.cache_dir / f"{job.id}-{before.number}.json"
    text = _read(file) if file else _ask_editor(state_text(before), draft)
    edited = replace(before, edited=None if _says_the_same(text, before.state) else text)

    async def keep(store: LocalStore) -> Job:
        from serving.cli.rehearse_edit import rehearse_edit

        document = await store.files.load_document(job.request.documents)
        await rehearse_edit(job, edited, document, settings)
        if fork:
            return _still_there(await store.jobs.fork(job.id, edited, checkpoints))
        return _still_there(await store.jobs.edit(job.id, edited))

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


def _read_job(settings: Settings, spelled: str) -> tuple[Job, list[Checkpoint]]:
    async def read(store: LocalStore) -> tuple[Job, list[Checkpoint]]:
        job = await _find(store.jobs, spelled)
        return job, await _checkpoints(store.jobs, job)

    return _in_store(settings, read)


def _in_store(settings: Settings, work: Callable[[LocalStore], Awaitable[Found]]) -> Found:
    from serving.jobs.run_here import open_store

    async def open_and_work() -> Found:
        async with open_store(settings) as store:
            return await work(store)

    return asyncio.run(open_and_work())


async def _find(store: JobStore, spelled: str) -> Job:
    """The job with this id, in any of its spellings, or with the only id that begins so."""
    beginning = spelled.removeprefix("job_").removeprefix("resp_").removeprefix("chatcmpl-").upper()
    found = await store.find_any(beginning)
    if not found:
        raise NothingToResume(f"No job {spelled!r} is known; `longfold jobs list` shows the latest.")
    if len(found) > 1:
        raise UnknownName(f"Several jobs have an id that begins with {spelled!r}; give more of it.")
    return found[0]


async def _checkpoints(store: JobStore, job: Job) -> list[Checkpoint]:
    from serving.jobs.steps import read_checkpoints

    return read_checkpoints(job, await store.steps(job.id))


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
