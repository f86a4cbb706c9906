"""`longfold ask`: load, plan, reach a model, ask, show; one question, or one after another on the warm document."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.dispatch.journal import Journal, RunHistory
from pipeline.documents.document import Document
from pipeline.documents.load import STDIN, load_documents
from pipeline.errors import CallerError, CapacityError, TooManySteps
from pipeline.findings.answer import Answer
from pipeline.run.answer_json import answer_record, document_record
from pipeline.run.checkpoints import RunPaused, StepOptions
from pipeline.run.events import Event
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.strategies import check_step
from pipeline.strategies.summarize.strategy import LANGCHAIN
from pipeline.text import duration
from serving.cli.show.answer import answer_lines, plan_lines, usage_lines
from serving.cli.show.langgraph_updates import LANGGRAPH, OURS, UpdatesView
from serving.cli.show.live import Display, Feed, make_display
from serving.cli.show.run import paused_lines, paused_record
from serving.flowchart import draw_flowchart
from serving.session import (
    OpenModel,
    Session,
    SpeedBook,
    bring_model,
    describe_model,
    open_session,
)
from serving.settings import Settings

PAUSED = 6
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for."""

    paths: tuple[str, ...]
    request: Request
    """Its question is empty if the user is to be prompted."""
    as_json: bool = False
    updates: bool = False
    """Beside `as_json`: a line for every step that ends, and the result as the last of them."""
    plan_only: bool = False
    graph: Path | None = None
    """Where the plan's graph is written, in the format that the name's ending says."""
    fresh: bool = False
    pause_before: str = ""
    """Name of the step before which the run stops."""
    max_steps: int | None = None
    run: str = ""
    """The run that is resumed, if one is."""
    document_sha256: str = ""
    """What that run read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """Everything at hand while questions are answered."""

    wish: Wish
    document: Document
    session: Session
    display: Display
    runner: asyncio.Runner


def run_ask(wish: Wish, settings: Settings) -> int:
    """Carry out `wish` and return the exit code; raises what the command line turns into a message."""
    display = make_display(sys.stderr, silent=wish.as_json)
    try:
        _require_question(wish)
        _check_graph(wish)
        _check_pause(wish)
        document = load_documents(wish.paths, sys.stdin.buffer if STDIN in wish.paths else None, warn=display.say)
        if wish.document_sha256 not in ("", document.sha256):
            display.say("The document has changed since; what is unchanged is taken from the journal.")
        model = bring_model(settings, display.report)
        display.say(describe_model(settings, model))
        if wish.plan_only:
            _show_plan(wish, document, model, SpeedBook(settings.cache_dir))
            return 0
        if wish.request.question:
            plan = model.plan(document, wish.request)  # a request that cannot be served fails before an engine starts
            check_step(plan.strategy, wish.pause_before)
        with open_session(settings, model, display.report) as session, asyncio.Runner() as runner:
            asking = _Asking(wish=wish, document=document, session=session, display=display, runner=runner)
            return _ask_once(asking) if wish.request.question else _ask_again_and_again(asking)
    finally:
        display.close()


def _require_question(wish: Wish) -> None:
    if wish.request.question:
        return
    if wish.as_json or wish.plan_only or STDIN in wish.paths or not sys.stdin.isatty():
        raise CallerError("There is no question; give one with --question.")


def _check_pause(wish: Wish) -> None:
    """A pause is of use only if the run can go on."""
    if not wish.pause_before:
        return
    if wish.fresh:
        raise CallerError("With --fresh nothing is kept, so a run that pauses could not go on; leave one of them out.")
    if STDIN in wish.paths:
        raise CallerError("A run that is to pause reads its document again when it goes on; give it as a file.")
    if not wish.request.question:
        raise CallerError("--pause-before is for one question; give it with --question.")


def _check_graph(wish: Wish) -> None:
    if wish.graph is None:
        return
    if not wish.plan_only:
        raise CallerError("--graph writes the plan's graph; give --plan with it.")
    if wish.graph.suffix not in (".svg", ".mmd"):
        raise CallerError("--graph takes a name that ends in .svg for a drawing or in .mmd for Mermaid text.")


def _write_graph(plan: Plan, path: Path) -> None:
    text = draw_flowchart(plan.graph) if path.suffix == ".svg" else f"{plan.graph}\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallerError(f"The graph cannot be written to {path}: {error.strerror}.") from error


def _show_plan(wish: Wish, document: Document, model: OpenModel, speeds: SpeedBook) -> None:
    plan = model.plan(document, wish.request)
    if wish.graph is not None:
        _write_graph(plan, wish.graph)
    profile = model.profile
    speed = speeds.find(profile.fingerprint)
    if wish.as_json:
        print_json({"plan": _plan_record(plan, profile.kv_bytes_per_token, speed), "model": profile.name})
        return
    print_lines(plan_lines(plan, kv_bytes_per_token=profile.kv_bytes_per_token, tokens_per_s=speed))


def _plan_record(plan: Plan, kv_bytes_per_token: int, tokens_per_s: float | None) -> dict[str, Any]:
    read_s = plan.document_tokens / tokens_per_s if tokens_per_s else None
    return asdict(plan) | {"kv_bytes": plan.document_tokens * kv_bytes_per_token, "estimated_seconds": read_s}


def _ask_once(asking: _Asking) -> int:
    wish = asking.wish
    run_id = wish.run or secrets.token_hex(4)
    journal = asking.session.journal
    journal.start_run(run_id, _run_record(asking))
    history = None if wish.fresh else RunHistory(journal, run_id)
    steps = StepOptions(pause_before=wish.pause_before, most=wish.max_steps, history=history)
    try:
        answer = _answer(asking, wish.request, steps)
    except RunPaused as paused:
        if wish.as_json:
            print_json({"paused": paused_record(paused)})
        else:
            print_lines(["", *paused_lines(paused, asking.document)])
        return PAUSED
    except TooManySteps:
        if not wish.fresh:
            asking.display.say(f"What was completed is kept. To go on: longfold ask --resume {run_id} --max-steps ...")
        raise
    except KeyboardInterrupt:
        asking.display.say(_how_to_resume(wish, run_id, journal))
        if wish.as_json:
            print_json({"error": {"type": "Interrupted", "message": "The run was interrupted."}, "run": run_id})
        return INTERRUPTED
    journal.finish_run(run_id, answer.text)
    if wish.pause_before:
        asking.display.say(f"The run did not pause: it came to no further step {wish.pause_before!r}.")
    if wish.as_json:
        record = _result_record(asking, answer, run_id)
        print_json({"answer": record} if wish.updates else record)
    else:
        _show_answer(answer, asking.document)
    return exit_code_of(answer)


def _ask_again_and_again(asking: _Asking) -> int:
    """A prompt until end of input. Ctrl-C ends the question at work; at the prompt it ends the command."""
    import readline  # noqa: F401  # gives input() line editing and history

    first_s = 0.0
    while True:
        try:
            question = input("\nQuestion (Ctrl-D ends): ").strip()
        except EOFError:
            print()  # noqa: T201
            return 0
        if not question:
            continue
        try:
            request = replace(asking.wish.request, question=question)
            answer = _answer(asking, request, StepOptions(most=asking.wish.max_steps))
        except KeyboardInterrupt:
            asking.display.say("Interrupted; what was completed is kept for the next question.")
            continue
        except CallerError as error:
            asking.display.say(str(error))
            continue
        _show_answer(answer, asking.document)
        if first_s:
            print_lines([faster_text(answer.total_seconds, first_s)])
        first_s = first_s or answer.total_seconds


def _answer(asking: _Asking, request: Request, steps: StepOptions) -> Answer:
    with asking.display.watch(asking.document) as feed:
        told = _tell_updates(request.strategy) if asking.wish.updates else feed
        asked = asking.session.ask(asking.document, request, told, fresh=asking.wish.fresh, steps=steps)
        return asking.runner.run(asked)


def _tell_updates(strategy: str) -> Feed:
    """Prints each step as it ends; those of LangGraph's schedule under the names that its guide gives them."""
    view = UpdatesView(LANGGRAPH if strategy == LANGCHAIN.name else OURS)

    def tell(event: Event) -> None:
        for node, update in view.add(event):
            print_json({node: update})

    return tell


def faster_text(seconds: float, first_s: float) -> str:
    """How a question on the warm document compares with the first one."""
    factor = first_s / max(seconds, 1e-3)
    compared = f"{factor:.1f} times faster than the first" if factor >= 1.05 else "no faster than the first"
    return f"{duration(seconds)}, {compared}"


def exit_code_of(answer: Answer) -> int:
    """0 for an answer and for an explicit "the document does not say"; that nothing could be read is a failure."""
    return CapacityError.exit_code if answer.coverage.nothing_read else 0


def _show_answer(answer: Answer, document: Document) -> None:
    print_lines(["", *answer_lines(answer, document), "", *usage_lines(answer.usage, answer.seconds)])


def _result_record(asking: _Asking, answer: Answer, run_id: str) -> dict[str, Any]:
    return {
        "question": asking.wish.request.question,
        **answer_record(answer, asking.document),
        "document": document_record(asking.document),
        "model": model_record(asking.session.model),
        "run": run_id,
    }


def _run_record(asking: _Asking) -> dict[str, Any]:
    wish = asking.wish
    return {
        "paths": [path if path == STDIN else str(Path(path).absolute()) for path in wish.paths],
        "request": asdict(wish.request),
        "model": str(asking.session.model.profile.path),
        "document": asking.document.sha256,
    }


def _how_to_resume(wish: Wish, run_id: str, journal: Journal) -> str:
    if wish.fresh:
        return "Interrupted; with --fresh nothing is kept."
    if not journal.writable:
        return "Interrupted; the journal could not be written, so some of what was completed is lost."
    if STDIN in wish.paths:
        return "Interrupted; what was completed is kept: give the same input and question again to go on."
    return f"Interrupted; what was completed is kept. To go on: longfold ask --resume {run_id}"


def model_record(model: OpenModel) -> dict[str, Any]:
    profile = model.profile
    return {"name": profile.name, "fingerprint": profile.fingerprint, "context_tokens": profile.context_tokens}


def print_json(record: Mapping[str, Any]) -> None:
    print(json.dumps(record), flush=True)  # noqa: T201  # ASCII: no output encoding can break it


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))  # noqa: T201
    sys.stdout.flush()
