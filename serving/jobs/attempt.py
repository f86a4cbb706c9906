"""One attempt at one job, by the holder of its lease: work, tell events as they come, end it as it went.

The work never touches the database. What it tells is kept here, and the runner writes it in the background, together
with that of its other jobs: a database that is busy or full holds up the telling and not the work. The end is written
here, with what was not written yet; and nothing is written once the lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from pipeline.errors import CapacityError, InternalError, LeaseLost, LongfoldError, ReplicaUnavailable
from pipeline.findings.answer import Answer
from pipeline.run.checkpoints import RunPaused
from pipeline.run.events import CallEnded, Event, Planned
from serving.jobs.events import EventRecorder, progress_record
from serving.jobs.health_probe import HealthProbe
from serving.jobs.job import Claim, JobState, Lane, NewEvent, Update
from serving.jobs.store import JobStore
from serving.jobs.usage import job_totals, usage_record
from serving.jobs.work import Documents, Result, run_chat, run_strategy
from serving.session import Session

_LOG = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
"""Of a job under which its runner died, or lost the model: after that the job is taken to be the reason."""
_MAX_PER_WRITE = 1000
"""Events of one job in one transaction: others wait for it."""
_GIVE_UP_S = 3.0
"""What a runner that is to end has for giving a job back to a database that takes nothing; its lease then runs out."""
_WAITS_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between attempts to write to a database that is busy or full; the last one repeats."""


class Stop(Enum):
    """Why work was ended before its time."""

    CANCELLED = auto()
    """By its owner."""
    LOST = auto()
    """Another runner has the lease."""
    SHUTDOWN = auto()
    """The runner ends, and gives the job back."""
    OUTAGE = auto()
    """The model is away: the job waits in the queue for it, and what was completed is not asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerContext:
    """What all jobs of a runner work with."""

    store: JobStore
    documents: Documents
    session: Session
    health: HealthProbe
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while events are written, so that a job's end does not overtake them."""
    shared_cache: bool = False
    """Whether owners share completed calls."""


class JobRun:
    """From a claim to the job's end, or to the loss of the claim."""

    def __init__(self, claim: Claim, context: RunnerContext, emit: Callable[[Event], None] = lambda _: None) -> None:
        """`emit` hears every event of the run, as it happens."""
        self.claim = claim
        self.outcome: Result | Exception | None = None
        """What the work came to; None until then, and if it was stopped."""
        self._context = context
        self._emit = emit
        self._stop: Stop | None = None
        self._ending = False
        self._working: asyncio.Task[Any] | None = None
        self._started_s = time.monotonic()
        self._recorder = EventRecorder(claim.job.request.revision)
        self._unwritten: list[NewEvent] = []
        self._plan: Mapping[str, Any] | None = None
        self._ids = {"job_id": claim.job.id}
        """Of its lines in the log."""

    def stop(self, why: Stop) -> None:
        """End the work; `run` then ends the job as `why` asks. The first reason counts, but a lost lease always."""
        if self._stop is None or why is Stop.LOST:
            self._stop = why
        if self._working is not None:
            self._working.cancel()

    async def run(self) -> None:
        """Return when the job has ended, was given back, or is someone else's."""
        self._working = asyncio.create_task(self._outcome())
        if self._stop is not None:
            self._working.cancel()
        await asyncio.wait({self._working})
        self.outcome = None if self._working.cancelled() else self._working.result()
        await self._end(self.outcome)

    @property
    def is_lost(self) -> bool:
        """Another runner has the job."""
        return self._stop is Stop.LOST

    @property
    def answer(self) -> Answer | None:
        """What the run answered, also where that counts as a failure of the job."""
        state = self._recorder.state
        return state.answer if state.is_finished else None

    @property
    def has_news(self) -> bool:
        """Something was told that is not written; the end writes it itself."""
        return bool(self._unwritten) and self._stop is not Stop.LOST and not self._ending

    def news(self) -> Update:
        """What was told and is not written, or the first of it."""
        events = self._unwritten[:_MAX_PER_WRITE]
        if not events:
            return Update(claim=self.claim, events=events)
        state = self._recorder.state
        progress = progress_record(state) | {"usage": usage_record(state, _usage_before(self.claim))}
        return Update(claim=self.claim, events=events, plan=self._plan, progress=progress)

    def wrote(self, update: Update) -> None:
        """That much is in the database."""
        del self._unwritten[: len(update.events)]

    async def _outcome(self) -> Result | Exception:
        try:
            return await self._work()
        except Exception as error:  # noqa: BLE001  # the boundary: it is recorded with the job
            return error

    async def _work(self) -> Result:
        job = self.claim.job
        if job.attempt > MAX_ATTEMPTS:
            raise InternalError(
                f"The job was given up: {MAX_ATTEMPTS} times the process that ran it died, or lost the model, "
                "before it could end. Try it again with a smaller document or smaller chunks."
            )
        owner = "" if self._context.shared_cache else job.owner
        if job.request.kind == "chat":
            return await run_chat(job, self._context.session, self._on_event, owner=owner)
        return await run_strategy(job, self._context.documents, self._context.session, self._on_event, owner=owner)

    def _on_event(self, event: Event) -> None:
        """What the run tells; called within the work, so it only takes note."""
        record = self._recorder.record(event)
        self._emit(event)
        failed = event.failed if isinstance(event, CallEnded) else None
        if failed and failed.error == "ReplicaUnavailable" and self._context.health.is_stalled:
            self._context.health.mark_down()
            self.stop(Stop.OUTAGE)
        if record is not None:
            self._unwritten.append(record)
        if isinstance(event, Planned) and record is not None:
            self._plan = record.data

    async def _retry_write(self, write: Callable[[Update], Awaitable[None]]) -> None:
        """Write what is left to tell and the end, until it succeeds or the lease is lost.

        A runner that is to end gives up after a while: what it holds is then taken over when its lease has run out.
        """
        attempts, began_s = 0, time.monotonic()
        while self._stop is not Stop.LOST:
            try:
                async with self._context.writing:
                    while len(self._unwritten) > _MAX_PER_WRITE:
                        first = self.news()
                        await self._context.store.append(self.claim, first.events)
                        self.wrote(first)
                    return await write(self.news())
            except LeaseLost:
                self.stop(Stop.LOST)
            except CapacityError as error:
                if not attempts:
                    _LOG.warning("job.write_waits", extra=self._ids | {"error": type(error).__name__})
                if self._stop is Stop.SHUTDOWN and time.monotonic() - began_s >= _GIVE_UP_S:
                    _LOG.warning("job.abandoned", extra=self._ids | {"error": type(error).__name__})
                    return None
                await asyncio.sleep(_WAITS_S[min(attempts, len(_WAITS_S) - 1)])
                attempts += 1
        return None

    async def _end(self, outcome: Result | Exception | None) -> None:
        """End the job as its work went; work that was complete before it was stopped counts as complete."""
        self._ending = True
        store = self._context.store
        if isinstance(outcome, Mapping):
            await self._finish(JobState.COMPLETED, result=outcome)
        elif isinstance(outcome, RunPaused):
            await self._retry_write(lambda last: store.pause(self.claim, outcome.checkpoint, last=last))
        elif isinstance(outcome, Exception):
            await self._finish(JobState.FAILED, error=self._error_record(outcome))
        elif self._stop is Stop.CANCELLED:
            await self._finish(JobState.CANCELLED)
        elif self._stop is Stop.OUTAGE and self.claim.job.lane is Lane.LOCAL:  # no other runner would take it
            self.outcome = ReplicaUnavailable("The model does not answer any more; what was completed is kept.")
            await self._finish(JobState.FAILED, error=self._error_record(self.outcome))
        else:
            counted = self._stop is Stop.OUTAGE
            await self._retry_write(lambda last: store.release(self.claim, counted=counted, last=last))
        _LOG.info("job.left", extra=self._ids | {"stop": self._stop and self._stop.name})

    async def _finish(self, state: JobState, **outcome: Mapping[str, Any]) -> None:
        answer, ran = self.answer, self._recorder.state
        totals = job_totals(
            ran,
            time.monotonic() - self._started_s,
            stage_seconds=answer.seconds if answer else {},
            coverage=answer.coverage if answer else None,
        )
        before = _usage_before(self.claim) if state is not JobState.COMPLETED else None
        usage = usage_record(ran, before)
        finish = self._context.store.finish
        await self._retry_write(
            lambda last: finish(self.claim, state, usage=usage, totals=totals, last=last, **outcome)
        )

    def _error_record(self, error: Exception) -> dict[str, Any]:
        if not isinstance(error, LongfoldError):
            # Its message may hold text of the document; where it was raised does not.
            where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            _LOG.error("job.fault", extra=self._ids | {"error": type(error).__name__, "at": where})
            error = InternalError("A fault in Longfold itself ended the job; the log has its place under the job's id.")
        return {"type": type(error).__name__, "message": str(error), "retryable": error.retryable}


def _usage_before(claim: Claim) -> Mapping[str, Mapping[str, int]] | None:
    """What earlier attempts told of their use."""
    return (claim.job.progress or {}).get("usage")
