"""Try an edited state before it is kept: the run is run again up to its step, from the journal alone, without a model.

So what does not fit is reported to the person who wrote it, and not when the job goes on.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pipeline.dispatch.journal import JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.errors import WrongState
from pipeline.front_door import ask
from pipeline.llm.model import Call, CallFailed, Outcome
from pipeline.run.checkpoints import Checkpoint, History, RunPaused, StepOptions
from serving.jobs.job import Job
from serving.jobs.steps import step_options
from serving.jobs.work import pipeline_request
from serving.session import open_journal, resolve_model
from serving.settings import Settings


class _NoModel:
    """The dispatcher of a rehearsal: a call that the journal does not have fails, as it did when the run was there."""

    window = 64

    async def complete(self, call: Call) -> Outcome:  # noqa: ARG002
        return CallFailed(error="ReplicaUnavailable", message="no call is made while an edit is tried")


async def rehearse_edit(job: Job, edited: Checkpoint, document: Document, settings: Settings) -> None:
    """Raises StateInvalid if the edited state does not fit, and WrongState if the run cannot come to its step again."""
    if not settings.model and job.request.model:
        settings = settings.model_copy(update={"model": job.request.model})
    model = await asyncio.to_thread(resolve_model, settings, lambda _: None)
    known = step_options(job).history
    edits = {number: at for number, at in known.edits.items() if number < edited.number} if known else {}
    if edited.edited is not None:
        edits[edited.number] = edited
    history = History(run_id=job.id, looked_at=edited.number - 1, edits=edits)
    owner = "" if settings.shared_cache else job.owner
    with open_journal(settings) as journal:
        dispatcher = JournaledDispatcher(_NoModel(), journal, model.namespace(owner), run_id=job.id)
        steps = StepOptions(pause_before=edited.name, history=history)
        try:
            await ask(document, pipeline_request(job.request), replace(model.resources(dispatcher), steps=steps))
        except RunPaused:
            return
    raise WrongState(
        f"The run no longer comes to step {edited.number} ({edited.name}) from what the journal has of it; "
        f"go on with it first: longfold jobs resume job_{job.id}"
    )
