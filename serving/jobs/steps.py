"""The steps of a job's run: where it is to pause, and what a person made of the states it has paused at.

The job's row has both, so that any runner can go on with it; completed calls are in the journal. Other checkpoints are
not kept: the run comes to them again without a call.
"""

from __future__ import annotations

from pipeline.run.checkpoints import Checkpoint, StepOptions
from serving.jobs.job import Job


def step_options(job: Job) -> StepOptions:
    return StepOptions(pause_before=job.request.pause_before, history=JobSteps(job))


class JobSteps:
    """The history of a job's run, as far as a person has seen it."""

    def __init__(self, job: Job) -> None:
        self.run_id = job.id
        self.paused_at = job.request.looked_at
        self._edits = {
            edit.step: Checkpoint(number=edit.step, name=edit.before, state=edit.was, edited=edit.state)
            for edit in job.request.edits
        }

    def find(self, number: int) -> Checkpoint | None:
        return self._edits.get(number)

    def save(self, number: int, name: str, state: str, *, paused: bool) -> None:
        """A pause is told by what ends the run (`RunPaused`)."""
