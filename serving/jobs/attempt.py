"""One attempt at one job, by the holder of its lease: work, tell events as they come, end it as it went.

The work never touches the database. What it tells is kept here and written in the background, so that a database that
is busy or full holds up the telling and not the work; and nothing is written once the lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pipeline.errors import CapacityError, InternalError, LeaseLost, LongfoldError
from pipeline.findings.answer import Answer
from pipeline.run.checkpoints import RunPaused
from pipeline.run.events import CallEnded, Event, Planned
from pipeline.run.state import RunProgress
from serving.jobs.events import EventRecorder, progress_record
from serving.jobs.health_probe import Pulse
from serving.jobs.job import Claim, JobState, NewEvent
from serving.jobs.store import JobStore
from serving.jobs.usage import Ledger
from serving.jobs.work import Documents, Result, run_chat, run_strategy
from serving.session import Session

_LOG = logging.getLogger(__name__)

MOST_ATTEMPTS = 4
"""Of a job under which its runner died, or lost the model: after that the job is taken to be the reason."""
FLUSH_S = 0.2
_MOST_PER_WRITE = 1000
"""Events in one transaction: others wait for it."""
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
class Bench:
    """What all jobs of a runner work with."""

    store: JobStore
    documents: Documents
    session: Session
    pulse: Pulse
    shared_cache: bool = False
    """Whether owners share completed calls."""


class JobRun:
    """From a claim to the job's end, or to the loss of the claim."""

    def __init__(self, claim: Claim, bench: Bench) -> None:
        self.claim = claim
        self._bench = bench
        self._stop: Stop | None = None
        self._working: asyncio.Task[Any] | None = None
        self._worked = asyncio.Event()
        self._recorder = EventRecorder()
        self._progress = RunProgress()
        self._ledger = Ledger()
        self._unwritten: list[NewEvent] = []
        self._plan: Mapping[str, Any] | None = None
        self._answer: Answer | None = None
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
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._keep_writing())
            self._working = group.create_task(self._outcome())
            if self._stop is not None:
                self._working.cancel()
            await asyncio.wait({self._working})
            self._worked.set()
            await writing
        outcome = None if self._working.cancelled() else self._working.result()
        await self._end(outcome)

    async def _outcome(self) -> Result | Exception:
        try:
            return await self._work()
        except Exception as error:  # noqa: BLE001  # the boundary: it is recorded with the job
            return error

    async def _work(self) -> Result:
        job = self.claim.job
        if job.attempt > MOST_ATTEMPTS:
            raise InternalError(
                f"The job was given up: {MOST_ATTEMPTS} times the process that ran it died, or lost the model, "
                "before it could end. Try it again with a smaller document or smaller chunks."
            )
        owner = "" if self._bench.shared_cache else job.owner
        if job.request.kind == "chat":
            return await run_chat(job, self._bench.session, self._hear, owner=owner)
        result, self._answer = await run_strategy(
            job, self._bench.documents, self._bench.session, self._hear, owner=owner
        )
        return result

    def _hear(self, event: Event) -> None:
        """What the run tells; called within the work, so it only takes note."""
        self._progress.add(event)
        if isinstance(event, CallEnded):
            self._ledger.add(event)
            if event.failed and event.failed.error == "ReplicaUnavailable" and self._bench.pulse.silent:
                self._bench.pulse.lose()
                self.stop(Stop.OUTAGE)
        record = self._recorder.record(event)
        if record is not None:
            self._unwritten.append(record)
        if isinstance(event, Planned) and record is not None:
            self._plan = record.data

    async def _keep_writing(self) -> None:
        while self._stop is not Stop.LOST and not (self._worked.is_set() and not self._unwritten):
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await self._worked.wait()
            if self._unwritten:
                await self._insist(self._write)

    async def _write(self) -> None:
        told = self._unwritten[:_MOST_PER_WRITE]
        usage = self._ledger.record(_usage_before(self.claim))
        progress = progress_record(self._progress) | {"usage": usage}
        await self._bench.store.append(self.claim, told, plan=self._plan, progress=progress)
        del self._unwritten[: len(told)]

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write until it succeeds, or until the lease is lost, which `stop` then knows."""
        attempts = 0
        while self._stop is not Stop.LOST:
            try:
                return await write()
            except LeaseLost:
                self.stop(Stop.LOST)
            except CapacityError as error:
                if not attempts:
                    _LOG.warning("job.write_waits", extra=self._ids | {"error": type(error).__name__})
                await asyncio.sleep(_WAITS_S[min(attempts, len(_WAITS_S) - 1)])
                attempts += 1
        return None

    async def _end(self, outcome: Result | Exception | None) -> None:
        """End the job as its work went; work that was complete before it was stopped counts as complete."""
        if isinstance(outcome, Mapping):
            await self._finish(JobState.COMPLETED, result=outcome)
        elif isinstance(outcome, RunPaused):
            await self._insist(lambda: self._bench.store.pause(self.claim, outcome.checkpoint))
        elif isinstance(outcome, Exception):
            await self._finish(JobState.FAILED, error=self._error_record(outcome))
        elif self._stop is Stop.CANCELLED:
            await self._finish(JobState.CANCELLED)
        else:
            counted = self._stop is Stop.OUTAGE
            await self._insist(lambda: self._bench.store.release(self.claim, counted=counted))
        _LOG.info("job.left", extra=self._ids | {"stop": self._stop and self._stop.name})

    async def _finish(self, state: JobState, **outcome: Mapping[str, Any]) -> None:
        job, answer = self.claim.job, self._answer
        totals = self._ledger.totals(
            max(0.0, time.time() - (job.started_unix_s or time.time())),
            stage_seconds=answer.seconds if answer else {},
            coverage=answer.coverage if answer else None,
        )
        before = _usage_before(self.claim) if state is not JobState.COMPLETED else None
        usage = self._ledger.record(before)
        await self._insist(lambda: self._bench.store.finish(self.claim, state, usage=usage, totals=totals, **outcome))

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
