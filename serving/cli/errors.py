"""How every command ends that does not end well."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from pipeline.errors import InternalError, LongfoldError
from pipeline.run.answer_json import error_record
from serving.cli.output import INTERRUPTED, print_json


class GuardedGroup(TyperGroup):
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
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:  # the process ends here, and says so
            if hasattr(error, "format_message"):  # a usage error, which typer shows and turns into exit code 2
                raise
            cause = _innermost(error)
            if isinstance(cause, BrokenPipeError):  # whoever read our output has seen enough
                sys.stderr.close()
                raise typer.Exit(0) from None
            fault = f"{type(cause).__name__}: {cause}"
            _fail(InternalError(f"A fault in Longfold itself ({fault}); please report it."))
            raise typer.Exit(InternalError.exit_code) from error


@contextmanager
def errors_as_json(wanted: bool) -> Iterator[None]:
    """Report an error on standard output too, if that is read by a machine."""
    try:
        yield
    except LongfoldError as error:
        if wanted:
            print_json(error_record(error))
        raise


def _innermost(error: BaseException) -> BaseException:
    """What went wrong at the bottom of a group of tasks that ended one another."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(error: LongfoldError) -> None:
    typer.echo(f"longfold: {error}", err=True)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger(__name__).debug("command.failed", exc_info=True)
