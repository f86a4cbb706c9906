"""The commands `longfold jobs ...`: parse and call."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.ask import AskOptions
from serving.cli.command_settings import command_settings
from serving.cli.errors import errors_as_json
from serving.cli.options import AsJson, MaxSteps, Model, PauseBefore, Updates

jobs = typer.Typer(
    no_args_is_help=True,
    help="Jobs, those of the command line and those of the API: list, show, edit, fork, resume, cancel, delete, prune.",
)

Id = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its beginning.")]
At = Annotated[int | None, typer.Option("--at", metavar="STEP", help="Number of the step; without it, the last.")]
State = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The state as JSON; - for standard input. Without it, on a terminal, your editor."
    ),
]


@jobs.command("list")
def list_jobs() -> None:
    """Show the latest jobs and their states."""
    from serving.cli import jobs_commands

    jobs_commands.list_jobs(command_settings())


@jobs.command("show")
def show_job(job: Id, at: At = None) -> None:
    """Show a job's history; with --at the whole state before that step, as JSON."""
    from serving.cli import jobs_commands

    jobs_commands.show_job(command_settings(), job, at)


@jobs.command("edit")
def edit_job(job: Id, file: State = "", at: At = None) -> None:
    """Replace the state before a step; the job goes on from there when it is resumed."""
    from serving.cli import jobs_commands

    jobs_commands.edit_job(command_settings(), job, file, at)


@jobs.command("fork")
def fork_job(job: Id, file: State = "", at: At = None) -> None:
    """The same in a new job, which pays for no call again that the first has made."""
    from serving.cli import jobs_commands

    jobs_commands.edit_job(command_settings(), job, file, at, fork=True)


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
    from serving.cli import jobs_commands

    as_json = as_json or updates
    options = AskOptions(as_json=as_json, updates=updates, pause_before=pause_before, max_steps=max_steps)
    with errors_as_json(as_json):
        code = jobs_commands.resume(command_settings(model=model), job, options)
    raise typer.Exit(code)


@jobs.command("cancel")
def cancel(job: Id) -> None:
    """Stop a job, wherever it runs. What was completed is kept."""
    from serving.cli import jobs_commands

    jobs_commands.cancel(command_settings(), job)


@jobs.command("delete")
def delete(job: Id) -> None:
    """Forget a job that has ended, with its history and its result."""
    from serving.cli import jobs_commands

    jobs_commands.delete(command_settings(), job)


@jobs.command("prune")
def prune_jobs() -> None:
    """Remove jobs, files and completed calls that are older, or more, than the settings keep."""
    from serving.cli import prune

    prune.prune(command_settings())
