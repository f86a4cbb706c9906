"""`longfold compare`: several strategies, one after another on the same document and engine, then side by side.

They do not run at once: each has the machine to itself, so that their times can be compared. Prefixes that one
strategy left in the engine's cache are there for the next; the column `cached` tells how much that was.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.documents.document import Document
from pipeline.documents.load import STDIN, load_documents
from pipeline.errors import CallerError, LongfoldError
from pipeline.run.answer_json import document_record
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.strategies import find_strategy
from serving.cli.ask import INTERRUPTED, exit_code_of, model_record, print_json, print_lines
from serving.cli.compare_answers import Attempt, exit_code_of_all
from serving.cli.show.comparison import comparison_lines, comparison_records, price_lines, price_records
from serving.cli.show.live import Display, make_display
from serving.estimate import plan_seconds
from serving.session import OpenModel, Session, SpeedBook, bring_model, describe_model, open_session
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparing:
    """Everything at hand while strategies are run."""

    wish: Comparison
    document: Document
    session: Session
    display: Display
    runner: asyncio.Runner


def strategy_names(text: str) -> tuple[str, ...]:
    """Names parted by commas, each once. Raises CallerError without one, UnknownName for a name that is none."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise CallerError("There is no strategy to compare; name some with --strategies.")
    for name in names:
        find_strategy(name)
    return names


def run_compare(wish: Comparison, settings: Settings) -> int:
    """Carry out `wish` and return the exit code. What one strategy cannot do is told in its row.

    Raises what would be every strategy's reason, before an engine starts.
    """
    display = make_display(sys.stderr, silent=wish.as_json)
    try:
        if not wish.request.question:
            raise CallerError("There is no question; give one with --question.")
        document = load_documents(wish.paths, sys.stdin.buffer if STDIN in wish.paths else None, warn=display.say)
        model = bring_model(settings, display.report)
        display.say(describe_model(settings, model))
        planned = [_plan(strategy, wish.request, document, model) for strategy in wish.strategies]
        _refuse_if_all_say_the_same(planned)
        if wish.plan_only:
            _show_prices(wish, planned, model, SpeedBook(settings.cache_dir))
            return _exit_code(planned)
        if all(attempt.error for attempt in planned):
            _show(wish, planned, document, model, interrupted=False)
            return _exit_code(planned)
        with open_session(settings, model, display.report) as session, asyncio.Runner() as runner:
            comparing = _Comparing(wish=wish, document=document, session=session, display=display, runner=runner)
            return _run_all(comparing, planned)
    finally:
        display.close()


def _plan(strategy: str, request: Request, document: Document, model: OpenModel) -> Attempt:
    try:
        return Attempt(strategy=strategy, plan=model.plan(document, replace(request, strategy=strategy)))
    except LongfoldError as error:
        return Attempt(strategy=strategy, error=error)


def _refuse_if_all_say_the_same(planned: Sequence[Attempt]) -> None:
    errors = [attempt.error for attempt in planned]
    if errors[0] is not None and len({str(error) for error in errors}) == 1:
        raise errors[0]


def _run_all(comparing: _Comparing, planned: Sequence[Attempt]) -> int:
    done: list[Attempt] = []
    interrupted = False
    for number, attempt in enumerate(planned, start=1):
        comparing.display.say(f"{number} of {len(planned)}: {attempt.title}")
        try:
            done.append(attempt if attempt.error else _run(comparing, attempt))
        except KeyboardInterrupt:
            interrupted = True
            kept = "nothing is kept" if comparing.wish.fresh else "what was completed is kept for the same command"
            comparing.display.say(f"Interrupted; {kept}.")
            done.extend(planned[number - 1 :])
            break
    _show(comparing.wish, done, comparing.document, comparing.session.model, interrupted=interrupted)
    return INTERRUPTED if interrupted else _exit_code(done)


def _run(comparing: _Comparing, attempt: Attempt) -> Attempt:
    wish = comparing.wish
    request = replace(wish.request, strategy=attempt.strategy)
    try:
        with comparing.display.watch(comparing.document) as feed:
            asked = comparing.session.ask(comparing.document, request, feed, fresh=wish.fresh)
            return replace(attempt, answer=comparing.runner.run(asked))
    except LongfoldError as error:
        comparing.display.say(f"{attempt.title} failed: {error}")
        return replace(attempt, error=error)


def _exit_code(attempts: Sequence[Attempt]) -> int:
    return exit_code_of_all([_code(attempt) for attempt in attempts])


def _code(attempt: Attempt) -> int:
    if attempt.error is not None:
        return attempt.error.exit_code
    return exit_code_of(attempt.answer) if attempt.answer else 0


def _show(
    wish: Comparison, attempts: Sequence[Attempt], document: Document, model: OpenModel, *, interrupted: bool
) -> None:
    if not wish.as_json:
        print_lines(["", *comparison_lines(attempts)])
        return
    record = {
        "question": wish.request.question,
        "strategies": comparison_records(attempts, document),
        "document": document_record(document),
        "model": model_record(model),
    }
    print_json(record | ({"interrupted": True} if interrupted else {}))


def _show_prices(wish: Comparison, planned: Sequence[Attempt], model: OpenModel, speeds: SpeedBook) -> None:
    tokens_per_s = speeds.find(model.profile.fingerprint)

    def seconds(plan: Plan) -> tuple[float | None, float | None]:
        return plan_seconds(plan, wish.request, tokens_per_s)

    if wish.as_json:
        print_json({"strategies": price_records(planned, seconds), "model": model.profile.name})
    else:
        print_lines(price_lines(planned, seconds))
