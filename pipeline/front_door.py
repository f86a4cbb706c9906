"""The front door: a document and a question in, an answer with evidence out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pipeline.documents.document import Document
from pipeline.errors import CallerError, EmptyDocument, LongfoldError
from pipeline.findings.answer import Answer
from pipeline.run.checkpoints import RunPaused
from pipeline.run.events import Finished, Planned
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from pipeline.strategies import check_options, check_step, find_strategy


def plan(document: Document, request: Request, resources: Resources) -> Plan:
    """What `ask` will do, before anything runs."""
    _check(document, request)
    quiet = replace(resources, emit=lambda _: None)  # planning splits the document too, and only a run tells of it
    return find_strategy(request.strategy).plan(document, request, quiet)


async def ask(document: Document, request: Request, resources: Resources) -> Answer:
    """Answer, emitting events from `Planned` to `Finished`.

    Raises CallerError for a request that cannot be served, and RunPaused where `resources.steps` asks for it. Calls
    that fail are in the answer's coverage.
    Cancelling the awaiting task aborts what is under way; completed calls stay in the journal.
    """
    planned = plan(document, request, resources)
    check_step(planned.strategy, resources.steps.pause_before)
    resources.emit(Planned(plan=planned))
    try:
        answer = await find_strategy(request.strategy).run(document, request, resources)
    except* (LongfoldError, RunPaused) as group:
        raise _first(group) from group
    resources.emit(Finished(answer=answer))
    return answer


def ask_sync(document: Document, request: Request, resources: Resources) -> Answer:
    """`ask`, where no event loop runs."""
    return asyncio.run(ask(document, request, resources))


def _first(group: BaseExceptionGroup[LongfoldError | RunPaused]) -> LongfoldError | RunPaused:
    """Stages run side by side; the first fault ends them all, and it is the one to tell."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _check(document: Document, request: Request) -> None:
    check_options(request.strategy, request.options)
    if not document.text.strip():
        raise EmptyDocument
    if not request.question.strip():
        raise CallerError("The question is empty; ask something.")
    if request.task == "multiple_choice" and len(request.choices) < 2:
        raise CallerError("A multiple-choice question needs at least two options; give them with --choice.")
    if request.choices and request.task != "multiple_choice":
        raise CallerError("Options belong to the task multiple_choice; ask with --task multiple_choice.")
