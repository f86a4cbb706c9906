"""The command `longfold`: parse, make a record of what is wanted, call. Everything else is elsewhere.

Exit codes: 0 done, 2 the request is at fault, 3 the moment is (try later), 4 the model's output, 5 Longfold itself,
130 interrupted.
"""

from __future__ import annotations

import logging
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.errors import CallerError, InternalError, LongfoldError
from pipeline.run import Limits, Request
from serving import ask_command, machine_commands
from serving.settings import Settings, load_settings


class _Guarded(TyperGroup):
    """Turns every error into one message and its exit code: the one place where commands end badly."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # not faults, although they are RuntimeErrors
            raise
        except LongfoldError as error:
            _fail(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(ask_command.INTERRUPTED) from None
        except BrokenPipeError:  # whoever read our output has seen enough
            sys.stderr.close()
            raise typer.Exit(0) from None
        except Exception as error:  # the process ends here, and says so
            if hasattr(error, "format_message"):  # a usage error, which typer shows and turns into exit code 2
                raise
            _fail(InternalError(f"A fault in Longfold itself ({_innermost(error)}); please report it."))
            raise typer.Exit(InternalError.exit_code) from error


app = typer.Typer(
    cls=_Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 2 the request, 3 the moment (try later), 4 the model, 5 Longfold, 130 interrupted.",
    help="Answers questions about documents far longer than a model's context, with quotes and where they stand.",
)
models = typer.Typer(no_args_is_help=True, help="Models: list, pull, check.")
app.add_typer(models, name="models")
keys = typer.Typer(no_args_is_help=True, help="API keys: create, list, revoke.")
app.add_typer(keys, name="keys")
database = typer.Typer(no_args_is_help=True, help="The database of jobs and keys: upgrade, check.")
app.add_typer(database, name="db")

Model = Annotated[
    str | None, typer.Option("--model", "-m", help="Model directory, hub repository (owner/name) or catalogue name.")
]


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


@app.command(no_args_is_help=True)
def ask(  # noqa: PLR0913, PLR0917  # a command's flags are its interface
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Text, Markdown, HTML, JSON, PDF, Word, Excel, PowerPoint; a directory; - for standard input.",
        ),
    ] = None,
    question: Annotated[str, typer.Option("--question", "-q", help="Without one: a prompt, on a terminal.")] = "",
    task: Annotated[str, typer.Option(help="Kind of work.")] = "",
    choice: Annotated[list[str] | None, typer.Option(help="An option of a multiple-choice question; repeat.")] = None,
    strategy: Annotated[str, typer.Option(help="Way to the answer.")] = "auto",
    model: Model = None,
    chunk_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a chunk.")] = None,
    gather: Annotated[
        int, typer.Option(min=0, help="Tokens of neighbouring text shown beside each chunk, with its headings.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, and no display.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show calls, tokens, memory and time, and stop.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run: the latest, or the one named as FILE.")
    ] = False,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Stop reading after so many calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Stop reading after so many tokens.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0, help="Stop reading after so many seconds.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Take nothing from the journal of earlier runs.")] = False,
) -> None:
    """Answer a question about documents."""
    try:
        settings = _settings(model=model)
        if resume:
            wish, model_path = _resumed(files or [], question, settings, as_json=as_json)
            settings = settings if model else _settings(model=model_path)
        else:
            request = Request(
                question=question.strip(),
                task=task or ("multiple_choice" if choice else "question_answering"),
                choices=tuple(choice or ()),
                strategy=strategy,
                chunk_tokens=chunk_tokens,
                gather_tokens=gather,
                limits=Limits(calls=max_calls, tokens=max_tokens, wall_time_s=max_seconds),
            )
            wish = ask_command.Wish(
                paths=tuple(files or ()), request=request, as_json=as_json, plan_only=plan, fresh=fresh
            )
        code = ask_command.run_ask(wish, settings)
    except LongfoldError as error:
        if as_json:
            ask_command.print_json(ask_command.error_record(error))
        raise
    raise typer.Exit(code)


@app.command()
def demo(
    full: Annotated[bool, typer.Option("--full", help="Read the whole document, however long it takes.")] = False,
    model: Model = None,
) -> None:
    """Ask two questions of Python's language reference."""
    from serving.demo import run_demo

    raise typer.Exit(run_demo(_settings(model=model), full=full))


@app.command()
def up(model: Model = None) -> None:
    """Start a cluster that stays: the next questions find the model loaded."""
    machine_commands.up(_settings(model=model))


@app.command()
def down() -> None:
    """Stop the cluster that is up."""
    machine_commands.down(_settings())


@app.command()
def status() -> None:
    """Show the cluster that is up and its replicas."""
    machine_commands.status(_settings())


@app.command()
def serve(
    model: Model = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; other than this machine's own: with keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 for any that is free.")] = None,
) -> None:
    """Serve the HTTP API and the console, and run the jobs that come in."""
    from serving.serve_command import run_serve

    run_serve(_settings(model=model, host=host, port=port), _report)


@app.command()
def runner(
    model: Model = None,
    parent: Annotated[int, typer.Option(hidden=True, help="Process whose end ends this one.")] = 0,
) -> None:
    """Run jobs from the database of a gateway that is elsewhere; `longfold serve` starts one of its own."""
    from serving.jobs.runner_process import run_runner

    run_runner(_settings(model=model), parent_pid=parent, report=_report)


@app.command()
def doctor(
    model: Model = None,
    canary: Annotated[bool, typer.Option(help="Also start the model and let it generate.")] = True,
) -> None:
    """Check machine, installation and model, and say how to mend what is wrong."""
    raise typer.Exit(machine_commands.doctor(_settings(model=model), canary=canary))


@models.command("list")
def list_models() -> None:
    """Show the models that are known by name."""
    machine_commands.list_known_models(_settings())


@models.command("pull")
def pull(name: Annotated[str, typer.Argument(help="Catalogue name or hub repository (owner/name).")]) -> None:
    """Bring a model to this machine, once."""
    machine_commands.pull(name, _settings())


@models.command("check")
def check(path: Annotated[str, typer.Argument(help="Model directory, or the name of a pulled model.")]) -> None:
    """Check that a model is complete and unchanged."""
    raise typer.Exit(machine_commands.check(path, _settings()))


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is for, to recognise it by.")],
    owner: Annotated[str, typer.Option(help="Team whose jobs and files it reaches; without one it has its own.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="infer, files, admin; repeat. [infer, files]")] = None,
    expires_in: Annotated[str, typer.Option(help="Such as 90d, 12h or 30m; without it, it does not expire.")] = "",
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Jobs it may submit in a minute.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=1, help="Tokens its jobs may take in a day.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="A model it may name; repeat. [all]")] = None,
) -> None:
    """Make a key and print its secret, once."""
    from serving import key_commands

    key_commands.create_key(
        _settings(),
        name=name,
        owner=owner,
        scopes=scope or ["infer", "files"],
        expires_in=expires_in,
        requests_per_minute=requests_per_minute,
        tokens_per_day=tokens_per_day,
        models=only or [],
    )


@keys.command("list")
def list_keys() -> None:
    """Show the keys, their limits and their use."""
    from serving import key_commands

    key_commands.list_keys(_settings())


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The part of the key between lf_ and the next _.")]) -> None:
    """Let a key work no more, at once."""
    from serving import key_commands

    key_commands.revoke_key(_settings(), key_id)


@database.command("upgrade")
def upgrade_schema() -> None:
    """Bring the tables to this version; a SQLite file is copied first."""
    from serving import key_commands

    key_commands.upgrade_schema(_settings())


@database.command("check")
def check_database() -> None:
    """Say whether the database can be used by this version and is sound."""
    from serving import key_commands

    key_commands.check_database(_settings())


def _report(text: str) -> None:
    typer.echo(text, err=True)


def _settings(**options: Any) -> Settings:
    settings = load_settings(**options)
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to debug
    return settings


def _resumed(files: list[str], question: str, settings: Settings, *, as_json: bool) -> tuple[ask_command.Wish, str]:
    if len(files) > 1 or question:
        raise CallerError("--resume takes at most the run to resume: its files and question are known.")
    return ask_command.resume_wish(files[0] if files else "", settings, as_json=as_json)


def _innermost(error: BaseException) -> str:
    """What went wrong at the bottom of a group of tasks that ended one another."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _fail(error: LongfoldError) -> None:
    typer.echo(f"longfold: {error}", err=True)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger(__name__).debug("command.failed", exc_info=True)


def _version() -> str:
    try:
        return metadata.version("longfold")
    except metadata.PackageNotFoundError:
        return f"from source in {Path(__file__).parents[1]}"
