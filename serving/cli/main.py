"""The command `longfold`: parse, make a record of what is wanted, call. Everything else is elsewhere.

Exit codes: 0 done, 2 the request is at fault, 3 temporarily unavailable, 4 the model's output, 5 Longfold itself,
6 paused as asked for, 130 interrupted.
"""

from __future__ import annotations

import signal
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from serving.cli import machine
from serving.cli.ask import ask
from serving.cli.command_settings import command_settings
from serving.cli.compare import compare
from serving.cli.demo import demo
from serving.cli.errors import GuardedGroup
from serving.cli.jobs import jobs
from serving.cli.keys import database, keys
from serving.cli.options import Model

app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 2 the request, 3 temporarily unavailable, 4 the model, 5 Longfold, 6 paused, "
    "130 interrupted.",
    help="Answers questions about documents far longer than a model's context, with quotes and where they stand.",
)
models = typer.Typer(no_args_is_help=True, help="Models: list, pull, check.")
app.add_typer(models, name="models")
app.add_typer(jobs, name="jobs")
app.add_typer(keys, name="keys")
app.add_typer(database, name="db")


def main() -> None:
    """Entry point of the installed command. A termination ends it as Ctrl-C does: nothing is left running."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"longfold {_version()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None: ...


app.command(no_args_is_help=True)(ask)
app.command(no_args_is_help=True)(compare)
app.command()(demo)


@app.command()
def up(model: Model = None) -> None:
    """Start a cluster that stays: the next questions find the model loaded."""
    machine.up(command_settings(model=model))


@app.command()
def down() -> None:
    """Stop the cluster that is up."""
    machine.down(command_settings())


@app.command()
def status() -> None:
    """Show the cluster that is up and its replicas."""
    machine.status(command_settings())


@app.command()
def serve(
    model: Model = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; other than this machine's own: with keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 for any that is free.")] = None,
) -> None:
    """Serve the HTTP API and the console, and run the jobs that come in."""
    from serving.cli.serve import run_serve

    run_serve(command_settings(model=model, host=host, port=port), _report)


@app.command()
def runner(
    model: Model = None,
    parent: Annotated[int, typer.Option(hidden=True, help="Process whose end ends this one.")] = 0,
    beat_fd: Annotated[int, typer.Option(hidden=True, help="Pipe on which the parent hears that this one lives.")] = -1,
) -> None:
    """Run jobs from the database of a gateway that is elsewhere; `longfold serve` starts one of its own."""
    from serving.jobs.runner_process import run_runner

    run_runner(command_settings(model=model), parent_pid=parent, beat_fd=beat_fd, report=_report)


@app.command()
def doctor(
    model: Model = None,
    canary: Annotated[bool, typer.Option(help="Also start the model and let it generate.")] = True,
) -> None:
    """Check machine, installation and model, and report problems and how to fix them."""
    raise typer.Exit(machine.doctor(command_settings(model=model), canary=canary))


@models.command("list")
def list_models() -> None:
    """Show the models that are known by name."""
    machine.list_known_models(command_settings())


@models.command("pull")
def pull(name: Annotated[str, typer.Argument(help="Catalogue name or hub repository (owner/name).")]) -> None:
    """Download a model."""
    machine.pull(name, command_settings())


@models.command("check")
def check(path: Annotated[str, typer.Argument(help="Model directory, or the name of a pulled model.")]) -> None:
    """Check that a model is complete and unchanged."""
    raise typer.Exit(machine.check(path, command_settings()))


def _report(text: str) -> None:
    typer.echo(text, err=True)


def _version() -> str:
    try:
        return metadata.version("longfold")
    except metadata.PackageNotFoundError:
        return f"from source in {Path(__file__).parents[2]}"
