"""`longfold ask`: load, plan, reach a model, ask, show; one question, or one after another on the warm document.

A question is a job in the store that the API uses, run in this process (`jobs/run_here.py`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.documents.document import Document
from pipeline.documents.load import STDIN
from pipeline.errors import CallerError, LeaseLost, TooManySteps
from pipeline.findings.answer import Answer
from pipeline.run.answer_json import answer_record, document_record
from pipeline.run.checkpoints import RunPaused
from pipeline.run.events import Event
from pipeline.run.plan import Plan
from pipeline.run.request import Limits, Request
from pipeline.strategies import check_step
from pipeline.strategies.summarize.strategy import LANGCHAIN
from serving.cli.asking import AskContext, asking, exit_code_of, faster_text, model_record
from serving.cli.command_settings import command_settings
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
    MaxSteps,
    MaxTokens,
    Model,
    PauseBefore,
    Task,
    Updates,
    request_from,
)
from serving.cli.output import INTERRUPTED, PAUSED, print_json, print_lines
from serving.cli.show.answer import answer_lines, plan_lines, usage_lines
from serving.cli.show.job import paused_lines, paused_record, spell_id
from serving.cli.show.langgraph_updates import LANGGRAPH, OURS, UpdatesView
from serving.cli.show.live import Feed
from serving.flowchart import draw_flowchart
from serving.session import OpenModel, SpeedBook
from serving.settings import Settings

if TYPE_CHECKING:  # the database is imported when a job is run
    from serving.jobs.attempt import JobRun
    from serving.jobs.job import Job, JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """How a question is answered and shown."""

    as_json: bool = False
    updates: bool = False
    """Beside `as_json`: a line for every step that ends, and the result as the last of them."""
    pause_before: str = ""
    """Name of the step before which the run stops."""
    max_steps: int | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of which documents."""

    paths: tuple[str, ...]
    request: Request
    """Its question is empty if the user is to be prompted."""
    plan_only: bool = False
    graph: Path | None = None
    """Where the plan's graph is written, in the format that the name's ending says."""


def ask(  # noqa: PLR0913, PLR0917  # a command's flags are its interface
    files: Files = None,
    question: Annotated[str, typer.Option("--question", "-q", help="Without one: a prompt, on a terminal.")] = "",
    task: Task = "",
    choice: Choice = None,
    strategy: Annotated[str, typer.Option(help="Way to the answer.")] = "auto",
    model: Model = None,
    chunk_tokens: ChunkTokens = None,
    gather: Gather = 0,
    as_json: AsJson = False,
    updates: Updates = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show calls, tokens, memory and time, and stop.")] = False,
    graph: Annotated[
        Path | None, typer.Option(help="With --plan: write its graph to this file, .svg or .mmd (Mermaid).")
    ] = None,
    pause_before: PauseBefore = "",
    max_steps: MaxSteps = None,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_seconds: MaxSeconds = None,
    fresh: Fresh = False,
) -> None:
    """Answer a question about documents. It becomes a job: `longfold jobs` lists, edits and resumes it."""
    as_json = as_json or updates
    with errors_as_json(as_json):
        limits = Limits(calls=max_calls, tokens=max_tokens, wall_time_s=max_seconds)
        asked = Question(
            paths=tuple(files or ()),
            request=request_from(question, task, choice, strategy, chunk_tokens, gather, limits),
            plan_only=plan,
            graph=graph,
        )
        options = AskOptions(
            as_json=as_json, updates=updates, pause_before=pause_before, max_steps=max_steps, fresh=fresh
        )
        code = run_ask(asked, options, command_settings(model=model))
    raise typer.Exit(code)


def run_ask(question: Question, options: AskOptions, settings: Settings) -> int:
    """Answer, and return the exit code; raises what the command line turns into a message."""
    with asking(settings, silent=options.as_json) as preparing:
        _check(question, options)
        document, model = preparing.load(question.paths), preparing.resolve_model()
        if question.plan_only:
            _show_plan(question, document, model, SpeedBook(settings.cache_dir), as_json=options.as_json)
            return 0
        if question.request.question:
            plan = model.plan(document, question.request)  # what cannot be served fails before an engine starts
            check_step(plan.strategy, options.pause_before)
        with preparing.open(model, document) as context:
            if not question.request.question:
                return _ask_again_and_again(context, options, question.request)
            return _ask_once(context, options, question.request)


def resume_job(job: Job, options: AskOptions, settings: Settings) -> int:
    """Go on with a job that rests, in this process, and return the exit code. Its document is kept with it."""
    from serving.jobs.run_here import open_store, run_job_again

    async def load() -> Document:
        async with open_store(settings) as store:
            return await store.files.load_document(job.request.documents)

    with asking(settings, silent=options.as_json) as preparing:
        check_step(job.request.strategy, options.pause_before)
        document, model = asyncio.run(load()), preparing.resolve_model()
        options = replace(options, fresh=job.request.fresh)
        with preparing.open(model, document) as context:

            def run(emit: Feed) -> Coroutine[Any, Any, JobRun]:
                pause_before, max_steps = options.pause_before, options.max_steps
                session = context.session
                return run_job_again(settings, session, job, emit, pause_before=pause_before, max_steps=max_steps)

            return _show_run(context, options, job.request, run, lambda: spell_id(job.id))


def _check(question: Question, options: AskOptions) -> None:
    if not question.request.question:
        if options.as_json or question.plan_only or STDIN in question.paths or not _is_terminal():
            raise CallerError("There is no question; give one with --question.")
        if options.pause_before:
            raise CallerError("--pause-before is for one question; give it with --question.")
    if options.pause_before and options.fresh:
        raise CallerError("With --fresh nothing is kept, so a run that pauses could not go on; leave one of them out.")
    if question.graph is not None and not question.plan_only:
        raise CallerError("--graph writes the plan's graph; give --plan with it.")
    if question.graph is not None and question.graph.suffix not in (".svg", ".mmd"):
        raise CallerError("--graph takes a name that ends in .svg for a drawing or in .mmd for Mermaid text.")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _write_graph(plan: Plan, path: Path) -> None:
    text = draw_flowchart(plan.graph) if path.suffix == ".svg" else f"{plan.graph}\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallerError(f"The graph cannot be written to {path}: {error.strerror}.") from error


def _show_plan(question: Question, document: Document, model: OpenModel, speeds: SpeedBook, *, as_json: bool) -> None:
    plan = model.plan(document, question.request)
    if question.graph is not None:
        _write_graph(plan, question.graph)
    profile = model.profile
    speed = speeds.find(profile.fingerprint)
    if as_json:
        print_json({"plan": _plan_record(plan, profile.kv_bytes_per_token, speed), "model": profile.name})
        return
    print_lines(plan_lines(plan, kv_bytes_per_token=profile.kv_bytes_per_token, tokens_per_s=speed))


def _plan_record(plan: Plan, kv_bytes_per_token: int, tokens_per_s: float | None) -> dict[str, Any]:
    read_s = plan.document_tokens / tokens_per_s if tokens_per_s else None
    return asdict(plan) | {"kv_bytes": plan.document_tokens * kv_bytes_per_token, "estimated_seconds": read_s}


def _ask_once(context: AskContext, options: AskOptions, request: Request) -> int:
    begun: list[Job] = []

    def run(emit: Feed) -> Coroutine[Any, Any, JobRun]:
        return _new_job(context, options, request, emit, begun.append)

    return _show_run(context, options, request, run, lambda: spell_id(begun[0].id) if begun else "")


def _new_job(
    context: AskContext, options: AskOptions, request: Request, emit: Feed, begun: Callable[[Job], None]
) -> Coroutine[Any, Any, JobRun]:
    from serving.jobs.run_here import job_request, run_new_job

    asked = job_request(
        request,
        pause_before=options.pause_before,
        max_steps=options.max_steps,
        fresh=options.fresh,
        model=str(context.session.model.profile.path),
    )
    return run_new_job(context.settings, context.session, context.document, asked, emit, begun)


def _show_run(
    context: AskContext,
    options: AskOptions,
    asked: Request | JobRequest,
    run: Callable[[Feed], Coroutine[Any, Any, JobRun]],
    job_id: Callable[[], str],
) -> int:
    """Run one job and show how it ended. `job_id` is known once the job is kept."""
    try:
        with context.display.watch(context.document) as feed:
            ran = context.runner.run(run(_print_updates(asked.strategy) if options.updates else feed))
        answer = _answer_of(ran)
    except RunPaused as paused:
        if options.as_json:
            print_json({"paused": paused_record(paused)})
        else:
            print_lines(["", *paused_lines(paused, context.document)])
        return PAUSED
    except TooManySteps:
        if not options.fresh:
            context.display.say(
                f"What was completed is kept. To go on: longfold jobs resume {job_id()} --max-steps ..."
            )
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        context.display.say(_how_to_resume(options, job_id(), is_full=context.session.journal.is_full))
        if options.as_json:
            print_json({"error": {"type": "Interrupted", "message": "The run was interrupted."}, "job": job_id()})
        return INTERRUPTED
    if options.pause_before:
        context.display.say(f"The run did not pause: it came to no further step {options.pause_before!r}.")
    if options.as_json:
        record = _result_record(context, asked.question, answer, job_id())
        print_json({"answer": record} if options.updates else record)
    else:
        _show_answer(answer, context.document)
    return exit_code_of(answer)


def _answer_of(ran: JobRun) -> Answer:
    """Also of a job that failed because nothing could be read: that is in the answer. Raises what the run raised."""
    if ran.answer is not None:
        return ran.answer
    if isinstance(ran.outcome, Exception):
        raise ran.outcome
    if ran.is_lost:
        raise LeaseLost("Another process has taken the job over.")
    raise KeyboardInterrupt  # it was cancelled from elsewhere


def _ask_again_and_again(context: AskContext, options: AskOptions, request: Request) -> int:
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
            asked = replace(request, question=question)
            with context.display.watch(context.document) as feed:
                ran = context.runner.run(_new_job(context, options, asked, feed, lambda _: None))
            answer = _answer_of(ran)
        except (KeyboardInterrupt, asyncio.CancelledError):
            context.display.say("Interrupted; what was completed is kept for the next question.")
            continue
        except CallerError as error:
            context.display.say(str(error))
            continue
        _show_answer(answer, context.document)
        if first_s:
            print_lines([faster_text(answer.total_seconds, first_s)])
        first_s = first_s or answer.total_seconds


def _print_updates(strategy: str) -> Feed:
    """Prints each step as it ends; those of LangGraph's schedule under the names that its guide gives them."""
    view = UpdatesView(LANGGRAPH if strategy == LANGCHAIN.name else OURS)

    def feed(event: Event) -> None:
        for node, update in view.add(event):
            print_json({node: update})

    return feed


def _show_answer(answer: Answer, document: Document) -> None:
    print_lines(["", *answer_lines(answer, document), "", *usage_lines(answer.usage, answer.seconds)])


def _result_record(context: AskContext, question: str, answer: Answer, job_id: str) -> dict[str, Any]:
    return {
        "question": question,
        **answer_record(answer, context.document),
        "document": document_record(context.document),
        "model": model_record(context.session.model),
        "job": job_id,
    }


def _how_to_resume(options: AskOptions, job_id: str, *, is_full: bool) -> str:
    if options.fresh:
        return "Interrupted; with --fresh nothing is kept."
    if is_full:
        return "Interrupted; the disk is full, so some of what was completed is lost."
    return f"Interrupted; what was completed is kept. To go on: longfold jobs resume {job_id}"
