"""The commands `longfold runs ...`: parse and call."""

from __future__ import annotations

from typing import Annotated

import typer

from serving.cli.command_settings import command_settings

runs = typer.Typer(no_args_is_help=True, help="Runs: list, show, edit, fork.")

Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its beginning.")]
At = Annotated[int | None, typer.Option("--at", metavar="STEP", help="Number of the step; without it, the last.")]
State = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The state as JSON; - for standard input. Without it, on a terminal, your editor."
    ),
]


@runs.command("list")
def list_runs() -> None:
    """Show the latest runs, and where each stands."""
    from serving.cli import runs_commands

    runs_commands.list_runs(command_settings())


@runs.command("show")
def show_run(run: Run, at: At = None) -> None:
    """Show a run's history; with --at the whole state before that step, as JSON."""
    from serving.cli import runs_commands

    runs_commands.show_run(command_settings(), run, at)


@runs.command("edit")
def edit_run(run: Run, file: State = "", at: At = None) -> None:
    """Put another state in the place of the one before a step; the run goes on from there when it is resumed."""
    from serving.cli import runs_commands

    runs_commands.edit_run(command_settings(), run, file, at)


@runs.command("fork")
def fork_run(run: Run, file: State = "", at: At = None) -> None:
    """The same in a run of its own, which pays for no call again that the first has made."""
    from serving.cli import runs_commands

    runs_commands.edit_run(command_settings(), run, file, at, fork=True)
