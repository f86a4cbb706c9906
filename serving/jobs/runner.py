"""The runner: claims jobs, runs the pipeline on them, and keeps their leases while it does.

    lanes ─claim─▶ JobRun ─end─▶ store                  a lane's jobs wait for one another only
    flush ─events of all jobs, in one write─▶ store
    beat ─renew and report; hear of cancelling─▶ store ─▶ JobRun.stop
    health ─is the model there?─▶ lanes, RunnerStatus

Any number of runners may share a database. A runner that dies leaves its jobs to the others, or to its successor,
which take them over when their leases have stood still; completed calls are in the journal and are not made again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.errors import CapacityError
from pipeline.run.events import Event
from serving.jobs.attempt import JobRun, RunnerContext, Stop
from serving.jobs.health_probe import CANARY_IDLE_S, HealthProbe
from serving.jobs.job import Claim, Lane, RunnerStatus
from serving.jobs.retention import DeletedJobs
from serving.jobs.store import LEASE_S, JobStore, LeaseWatch
from serving.jobs.work import Documents
from serving.models.profile import ModelProfile
from serving.session import Session

_LOG = logging.getLogger(__name__)

ReplicaStats = Callable[[], Sequence[Mapping[str, Any]]]
"""`ReplicaStats` of every replica as JSON types; may wait for them."""

_AFTER_FAULT_S = 1.0
PLACES: Mapping[Lane, int] = {Lane.LONG: 2, Lane.SHORT: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a runner does what it does again and again."""

    poll_s: float = 0.05
    """Looking for work while a place is free."""
    look_s: float = 0.5
    """Asking for work although nothing seems to be written: a write may be missed, and leases must be watched."""
    listen_s: float = 0.4
    """Looking whether a running job is to be cancelled."""
    flush_s: float = 0.2
    """What the jobs have told is written so often."""
    beat_s: float = 2.0
    lease_s: float = LEASE_S
    forget_s: float = 5.0
    """Looking for jobs that were deleted, whose completions go with them."""
    canary_idle_s: float = CANARY_IDLE_S


def new_runner_id() -> str:
    """Of a runner of this process."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def new_status(profile: ModelProfile, runner_id: str = "") -> RunnerStatus:
    """Of a runner of this process that is about to start."""
    return RunnerStatus(
        id=runner_id or new_runner_id(),
        pid=os.getpid(),
        beat=0,
        ready=False,
        since_unix_s=time.time(),
        message="starting",
        model=profile.name,
        model_fingerprint=profile.fingerprint,
        context_tokens=profile.context_tokens,
    )


class JobRunner:
    """Runs jobs until it is stopped."""

    def __init__(
        self,
        store: JobStore,
        documents: Documents,
        session: Session,
        *,
        places: Mapping[Lane, int] = PLACES,
        shared_cache: bool = False,
        replica_stats: ReplicaStats = tuple,
        pace: Pace | None = None,
        status: RunnerStatus | None = None,
    ) -> None:
        """`places`: jobs of each lane at once. `status`: what this runner has told of itself while it started."""
        self._status = status or new_status(session.model.profile)
        self.runner_id = self._status.id
        self._pace = pace or Pace()
        self._health = HealthProbe(session.dispatcher, idle_s=self._pace.canary_idle_s)
        self._session = replace(session, dispatcher=self._health)
        self._context = RunnerContext(
            store=store,
            documents=documents,
            session=self._session,
            health=self._health,
            shared_cache=shared_cache,
        )
        self._store = store
        self._journal = session.journal
        self._deleted = DeletedJobs(store, session.journal)
        self._places = places
        self._watch = LeaseWatch(lease_s=self._pace.lease_s)
        self._local_watch = LeaseWatch(lease_s=self._pace.lease_s)
        self._replica_stats = replica_stats
        self._replicas: tuple[Mapping[str, Any], ...] = ()
        self._runs: dict[str, JobRun] = {}
        self._stopping = asyncio.Event()
        """No job is claimed any more."""
        self._idle = asyncio.Event()
        """No job is held any more."""

    async def run(self) -> None:
        """Until cancelled; what is held is then given back before this returns."""
        working = asyncio.ensure_future(self._work())
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self._stopping.set()
            await working
            raise

    async def run_one(self, claim: Claim, emit: Callable[[Event], None]) -> JobRun:
        """Carry out this job and no other, and return when it has ended; if cancelled, when it was cancelled too.

        `emit` hears the run's events. Nobody else is told of this runner: it takes no work.
        """
        run = JobRun(claim, self._context, emit)
        self._runs[claim.job.id] = run
        async with asyncio.TaskGroup() as helpers:
            for step, pause_s in (
                (self._renew, self._pace.beat_s),
                (self._poll_cancellation, self._pace.listen_s),
                (self._flush, self._pace.flush_s),
            ):
                helpers.create_task(self._repeat(step, pause_s))
            running = asyncio.ensure_future(self._carry_out(run))
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                run.stop(Stop.CANCELLED)
                await running
                raise
            finally:
                self._idle.set()
        return run

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as helpers:
            for step, pause_s in (
                (self._beat, self._pace.beat_s),
                (self._poll_cancellation, self._pace.listen_s),
                (self._flush, self._pace.flush_s),
                (self._end_abandoned, self._pace.beat_s),
                (self._ask_replicas, self._pace.beat_s),
                (self._check_pulse, 1.0),
                (self._forget_deleted, self._pace.forget_s),
            ):
                helpers.create_task(self._repeat(step, pause_s))
            async with asyncio.TaskGroup() as jobs:
                lanes = [jobs.create_task(self._serve(lane, jobs)) for lane in self._places]
                await asyncio.wait(lanes)
                for run in self._runs.values():
                    run.stop(Stop.SHUTDOWN)
            self._idle.set()
        with suppress(CapacityError):
            await self._store.forget_runner(self.runner_id)

    async def _serve(self, lane: Lane, jobs: asyncio.TaskGroup) -> None:
        seen, looked_s = None, 0.0
        while not self._stopping.is_set():
            mark, now_s = self._store.change_mark(), time.monotonic()
            fresh = mark is None or mark != seen or now_s - looked_s >= self._pace.look_s
            if fresh and self._free(lane) and self._health.ready and not self._journal.is_full:
                seen, looked_s = mark, now_s
                if await self._claim(lane, jobs):
                    continue
            await _pause(self._stopping, self._pace.poll_s)

    def _free(self, lane: Lane) -> bool:
        return sum(run.claim.job.lane is lane for run in self._runs.values()) < self._places[lane]

    async def _claim(self, lane: Lane, jobs: asyncio.TaskGroup) -> bool:
        try:
            claim = await self._store.claim(self.runner_id, lane, self._watch)
        except CapacityError as error:
            _LOG.warning("job.claim_waits", extra={"error": type(error).__name__})
            await _pause(self._stopping, 1.0)
            return False
        if claim is None:
            return False
        run = JobRun(claim, self._context)
        if (before := self._runs.get(claim.job.id)) is not None:  # our own, which we could not renew in time
            before.stop(Stop.LOST)
        self._runs[claim.job.id] = run
        _LOG.info("job.claimed", extra={"job_id": claim.job.id, "attempt": claim.job.attempt})
        jobs.create_task(self._carry_out(run))
        return True

    async def _carry_out(self, run: JobRun) -> None:
        try:
            await run.run()
        finally:
            if self._runs.get(run.claim.job.id) is run:
                del self._runs[run.claim.job.id]

    async def _repeat(self, step: Callable[[], Awaitable[None]], pause_s: float) -> None:
        """As long as a job may be held; a database that is busy or full is asked again after a while."""
        failed = False
        while not self._idle.is_set():
            try:
                await step()
                failed = False
            except CapacityError as error:
                if not failed:
                    _LOG.warning("runner.waits", extra={"step": step.__name__, "error": type(error).__name__})
                failed = True
            await _pause(self._idle, max(pause_s, _AFTER_FAULT_S) if failed else pause_s)

    async def _renew(self) -> None:
        await self._apply_lease_state(self._store.beat)

    async def _end_abandoned(self) -> None:
        await self._store.end_abandoned(self._local_watch)

    async def _beat(self) -> None:
        before = self._status
        ready = self._health.ready and not self._stopping.is_set() and not self._journal.is_full
        self._status = replace(
            before,
            beat=before.beat + 1,
            ready=ready,
            since_unix_s=before.since_unix_s if ready == before.ready else time.time(),
            message=self._message(),
            replicas=self._replicas,
        )
        await self._apply_lease_state(lambda claims: self._store.beat(claims, self._status))

    async def _poll_cancellation(self) -> None:
        await self._apply_lease_state(self._store.look_at_leases)

    async def _apply_lease_state(self, ask: Callable[[Sequence[Claim]], Awaitable[Mapping[str, bool]]]) -> None:
        """Stop the runs whose leases are lost, or that are to be cancelled."""
        runs = list(self._runs.values())
        held = await ask([run.claim for run in runs])
        for run in runs:
            if run.claim.job.id not in held:
                run.stop(Stop.LOST)
            elif held[run.claim.job.id]:
                run.stop(Stop.CANCELLED)

    async def _flush(self) -> None:
        """Write what all jobs have told since the last time, in one transaction: a post waits for few of them."""
        runs = [run for run in self._runs.values() if run.has_news]
        if not runs:
            return
        updates = {run: run.news() for run in runs}
        async with self._context.writing:
            lost = await self._store.append_all(list(updates.values()))
        for run, update in updates.items():
            if run.claim.job.id in lost:
                run.stop(Stop.LOST)
            else:
                run.wrote(update)

    def _message(self) -> str:
        if self._stopping.is_set():
            return "stopping"
        if self._journal.is_full:
            return "the disk is full: jobs wait, and go on when there is room"
        if not self._health.ready:
            return self._health.trouble or "the model does not answer"
        if not self._runs:
            return "waiting for work"
        return f"running {len(self._runs)} job{'s' if len(self._runs) > 1 else ''}"

    async def _ask_replicas(self) -> None:
        self._replicas = tuple(await asyncio.to_thread(self._replica_stats))

    async def _forget_deleted(self) -> None:
        await self._deleted.forget()

    async def _check_pulse(self) -> None:
        await self._health.check(self._session.model.tokenizer)


async def _pause(until: asyncio.Event, seconds: float) -> None:
    """Sleep, but not longer than until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
