"""The steps of a job's run: where it is to pause, what a person made of its states, and the states themselves.

The job's row has what a person did, so that any runner can go on with it; its history has the states; completed calls
are in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pipeline.run.checkpoints import Checkpoint, History, StepOptions
from serving.jobs.events import RecordedRun
from serving.jobs.job import EventRecord, Job

STEP_KINDS = ("step", "job.paused", "job.edited")
"""The records of a history that say which states a run has come to."""


def step_options(job: Job) -> StepOptions:
    request = job.request
    edits = {
        edit.step: Checkpoint(number=edit.step, name=edit.before, state=edit.was, edited=edit.state)
        for edit in request.edits
    }
    history = History(run_id=job.id, looked_at=request.looked_at, edits=edits)
    return StepOptions(pause_before=request.pause_before, max_steps=request.max_steps, history=history)


def read_checkpoints(job: Job, records: Iterable[EventRecord]) -> list[Checkpoint]:
    """The states that the run has come to, with the edits of them, in the order of the steps."""
    run = RecordedRun()
    for record in records:
        run.add(record)
    edits = {edit.step: edit.state for edit in job.request.edits}
    steps = sorted(run.state.steps.values(), key=lambda step: step.number)
    return [replace(step, edited=edits.get(step.number)) for step in steps]
