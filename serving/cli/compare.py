"""`longfold compare`: several strategies, one after another on the same document and engine, then side by side.

They do not run at once: each has the machine to itself, so that their times can be compared. Prefixes that one
strategy left in the engine's cache are there for the next; the column `cached` tells how much that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from pipeline.documents.document import Document
from pipeline.errors import CallerError, LongfoldError
from pipeline.run.answer_json import document_record
from pipeline.run.plan import Plan
from pipeline.run.request import Limits, Request
from pipeline.strategies import find_strategy
from serving.cli.asking import AskContext, asking, exit_code_of, model_record
from serving.cli.command_settings import command_settings
from serving.cli.compare_answers import Attempt, exit_code_of_all
from serving.cli.errors import errors_as_json
from serving.cli.options import (
    AsJson,
    Choice,
    ChunkTokens,
    Files,
    Fresh,
    Gather,
    MaxCalls,
    MaxSeconds,
    MaxTokens,
    Model,
    Task,
    request_from,
)
from serving.cli.output import INTERRUPTED, print_json, print_lines
from serving.cli.show.comparison import comparison_lines, comparison_records, price_lines, price_records
from serving.estimate import plan_seconds
from serving.session import OpenModel, SpeedBook
from serving.settings import Settings

DEFAULT_STRATEGIES = "mapreduce,truncate,reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the command line asks for."""

    paths: tuple[str, ...]
    request: Request
    """Its strategy is replaced by each of `strategies`."""
    strategies: tuple[str, ...]
    as_json: bool = False
    plan_only: bool = False
    fresh: bool = False


def compare(  # noqa: PLR0913, PLR0917
    files: Files = None,
    question: Annotated[str, typer.Option("--question", "-q", help="Asked under every strategy.")] = "",
    strategies: Annotated[str, typer.Option(help="Comma-separated names.")] = DEFAULT_STRATEGIES,
    task: Task = "",
    choice: Choice = None,
    model: Model = None,
    chunk_tokens: ChunkTokens = None,
    gather: Gather = 0,
    as_json: AsJson = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show the prices and stop.")] = False,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    fresh: Fresh = False,
) -> None:
    """Answer a question under several strategies, one after another, and show the answers side by side."""
    with errors_as_json(as_json):
        limits = Limits(calls=max_calls, tokens=max_tokens, wall_time_s=max_seconds)
        asked = Comparison(
            paths=tuple(files or ()),
            request=request_from(question, task, choice, "", chunk_tokens, gather, limits),
            strategies=strategy_names(strategies),
            as_json=as_json,
            plan_only=plan,
            fresh=fresh,
        )
        code = run_compare(asked, command_settings(model=model))
    raise typer.Exit(code)


def strategy_names(text: str) -> tuple[str, ...]:
    """Comma-separated names, each once. Raises CallerError without one, UnknownName for a name that is none."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise CallerError("There is no strategy to compare; name some with --strategies.")
    for name in names:
        find_strategy(name)
    return names


def run_compare(asked: Comparison, settings: Settings) -> int:
    """Compare, and return the exit code. What one strategy cannot do is reported in its row.

    Raises what would be every strategy's reason, before an engine starts.
    """
    with asking(settings, silent=asked.as_json) as preparing:
        if not asked.request.question:
            raise CallerError("There is no question; give one with --question.")
        document, model = preparing.load(asked.paths), preparing.resolve_model()
        planned = [_plan(strategy, asked.request, document, model) for strategy in asked.strategies]
        _refuse_if_all_say_the_same(planned)
        if asked.plan_only:
            _show_prices(asked, planned, model, SpeedBook(settings.cache_dir))
            return _exit_code(planned)
        if all(attempt.error for attempt in planned):
            _show(asked, planned, document, model, interrupted=False)
            return _exit_code(planned)
        with preparing.open(model, document) as context:
            return _run_all(context, asked, planned)


def _plan(strategy: str, request: Request, document: Document, model: OpenModel) -> Attempt:
    try:
        return Attempt(strategy=strategy, plan=model.plan(document, replace(request, strategy=strategy)))
    except LongfoldError as error:
        return Attempt(strategy=strategy, error=error)


def _refuse_if_all_say_the_same(planned: Sequence[Attempt]) -> None:
    errors = [attempt.error for attempt in planned]
    if errors[0] is not None and len({str(error) for error in errors}) == 1:
        raise errors[0]


def _run_all(context: AskContext, asked: Comparison, planned: Sequence[Attempt]) -> int:
    done: list[Attempt] = []
    interrupted = False
    for number, attempt in enumerate(planned, start=1):
        context.display.say(f"{number} of {len(planned)}: {attempt.title}")
        try:
            done.append(attempt if attempt.error else _run(context, asked, attempt))
        except KeyboardInterrupt:
            interrupted = True
            kept = "nothing is kept" if asked.fresh else "what was completed is kept for the same command"
            context.display.say(f"Interrupted; {kept}.")
            done.extend(planned[number - 1 :])
            break
    _show(asked, done, context.document, context.session.model, interrupted=interrupted)
    return INTERRUPTED if interrupted else _exit_code(done)


def _run(context: AskContext, asked: Comparison, attempt: Attempt) -> Attempt:
    request = replace(asked.request, strategy=attempt.strategy)
    try:
        with context.display.watch(context.document) as feed:
            answering = context.session.ask(context.document, request, feed, fresh=asked.fresh)
            return replace(attempt, answer=context.runner.run(answering))
    except LongfoldError as error:
        context.display.say(f"{attempt.title} failed: {error}")
        return replace(attempt, error=error)


def _exit_code(attempts: Sequence[Attempt]) -> int:
    return exit_code_of_all([_code(attempt) for attempt in attempts])


def _code(attempt: Attempt) -> int:
    if attempt.error is not None:
        return attempt.error.exit_code
    return exit_code_of(attempt.answer) if attempt.answer else 0


def _show(
    asked: Comparison, attempts: Sequence[Attempt], document: Document, model: OpenModel, *, interrupted: bool
) -> None:
    if not asked.as_json:
        print_lines(["", *comparison_lines(attempts)])
        return
    record = {
        "question": asked.request.question,
        "strategies": comparison_records(attempts, document),
        "document": document_record(document),
        "model": model_record(model),
    }
    print_json(record | ({"interrupted": True} if interrupted else {}))


def _show_prices(asked: Comparison, planned: Sequence[Attempt], model: OpenModel, speeds: SpeedBook) -> None:
    tokens_per_s = speeds.find(model.profile.fingerprint)

    def seconds(plan: Plan) -> tuple[float | None, float | None]:
        return plan_seconds(plan, asked.request, tokens_per_s)

    if asked.as_json:
        print_json({"strategies": price_records(planned, seconds), "model": model.profile.name})
    else:
        print_lines(price_lines(planned, seconds))
