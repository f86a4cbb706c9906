"""Try an edited state before it is kept: the run is run again up to its step, from the journal alone, without a model.

So whatever does not fit is told to whoever wrote it, and not when the run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import typer

from pipeline.ask import ask
from pipeline.dispatch.journal import Journal, JournaledDispatcher, RunHistory, RunRecord
from pipeline.documents.load import load_documents
from pipeline.errors import WrongState
from pipeline.llm.model import Call, CallFailed, Outcome
from pipeline.run.checkpoints import Checkpoint, RunPaused, StepOptions
from serving.cli.resume_run import recorded_wish
from serving.session import bring_model
from serving.settings import Settings


class _NoModel:
    """The dispatcher of a rehearsal: a call that the journal does not have fails, as it did when the run was there."""

    async def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        for _ in calls:
            yield CallFailed(error="ReplicaUnavailable", message="no call is made while an edit is tried")


class _Rehearsal(RunHistory):
    """A run's history with one edit more, to which nothing is written."""

    def __init__(self, journal: Journal, run_id: str, edited: Checkpoint) -> None:
        super().__init__(journal, run_id)
        self._known = {number: known for number, known in self._known.items() if number < edited.number}
        self._known[edited.number] = replace(edited, paused=False)

    @property
    def paused_at(self) -> int:
        return max(self._known) - 1

    def save(self, number: int, name: str, state: str, *, paused: bool) -> None: ...


def rehearse_edit(record: RunRecord, edited: Checkpoint, journal: Journal, settings: Settings) -> None:
    """Raises StateInvalid if the edited state does not fit, and WrongState if the run cannot come to its step again."""
    wish, model_path = recorded_wish(record)
    document = load_documents(wish.paths, None, warn=lambda message: typer.echo(message, err=True))
    if document.sha256 != wish.document_sha256:
        raise WrongState("The document has changed since the run read it; ask the question anew.")
    model = bring_model(settings.model_copy(update={"model": model_path}), lambda _: None)
    dispatcher = JournaledDispatcher(_NoModel(), journal, model.profile.fingerprint)
    history = _Rehearsal(journal, record.run_id, edited)
    steps = StepOptions(pause_before=edited.name, history=history)
    try:
        asyncio.run(ask(document, wish.request, replace(model.resources(dispatcher), steps=steps)))
    except RunPaused:
        return
    raise WrongState(
        f"The run no longer comes to step {edited.number} ({edited.name}) from what the journal has of it; "
        f"go on with it first: longfold ask --resume {record.run_id}"
    )
