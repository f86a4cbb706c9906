"""Jobs and their events in the database: what gateways ask for, and what runners do with the jobs they hold.

A lease has no clock. Every claim raises the job's fence, and every write of a holder is checked against it in its own
transaction: a holder that was overtaken while it slept can write nothing. When another's lease may be taken over,
`LeaseWatch` says, by the watcher's own clock.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, delete, func, insert, literal, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from ulid import ULID

from pipeline.errors import IdempotencyMismatch, LeaseLost, Overloaded, StateInvalid, WrongState
from pipeline.run.checkpoints import Checkpoint
from serving.jobs.events import step_record
from serving.jobs.job import (
    NEXT,
    TERMINAL,
    Claim,
    EventRecord,
    Job,
    JobRequest,
    JobState,
    Lane,
    NewEvent,
    NewJob,
    QueueAhead,
    RunnerStatus,
    StepEdit,
    Update,
)
from serving.jobs.rows import event_from, job_from, request_from, runner_from
from serving.jobs.steps import STEP_KINDS
from serving.storage import budgets
from serving.storage.database import Database, upsert
from serving.storage.json_columns import to_json, to_json_or_null
from serving.storage.schema import deleted_jobs, events, job_documents, jobs, runners, totals

LEASE_S = 10.0
"""A holder beats every 2 s; five beats that do not come are no delay but a death, or as good as one."""
_MAX_PER_LOOK_S = LEASE_S / 4
"""Time between two looks counts up to here: whoever was himself stopped cannot tell that others stood still."""
MAX_QUEUED = 10_000
"""Jobs that wait; beyond it a new one is refused, for it would wait for days."""
MAX_QUEUED_PER_OWNER = 2_000
"""Of one owner: nobody can fill the queue for all others."""
ATTACH_S = 900.0
"""How long a repeated request without an idempotency key finds the job of the first."""
Totals = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""Metric name and sorted labels → value."""
PAUSED_KIND = f"job.{JobState.PAUSED}"
_FORGOTTEN_S = 86_400.0
_DELETED_KEPT_S = 30 * 86_400.0
"""A runner that was away for longer does not hear which jobs were deleted meanwhile; its journal's limits remain."""
_PRUNED_AT_ONCE = 50
"""Jobs in one transaction, each with its events: others wait for it."""
_KEYS_AT_ONCE = 5_000
"""Databases take some 32,000 values in a statement."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a running job's row says of its holder."""

    job_id: str
    fence: int
    beat: int


@dataclass(slots=True)
class _Seen:
    lease: Lease
    looked_s: float
    still_s: float = 0.0


class LeaseWatch:
    """What one runner has seen of others' leases, by its own monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, lease_s: float = LEASE_S) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._max_per_look_s = min(_MAX_PER_LOOK_S, lease_s / 4)
        self._seen: dict[str, _Seen] = {}

    def look(self, leases: Iterable[Lease]) -> list[Lease]:
        """Take note of all leases there are; return those that have not changed for the length of a lease."""
        now_s = self._clock()
        seen: dict[str, _Seen] = {}
        for lease in leases:
            before = self._seen.get(lease.job_id)
            if before is None or before.lease != lease:
                seen[lease.job_id] = _Seen(lease, now_s)
                continue
            passed_s = max(0.0, now_s - before.looked_s)
            seen[lease.job_id] = _Seen(lease, now_s, before.still_s + min(passed_s, self._max_per_look_s))
        self._seen = seen
        return [entry.lease for entry in seen.values() if entry.still_s >= self._lease_s]


class JobStore:
    """The jobs of one installation. Gateways see them by owner: to everyone else an id does not exist."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        """`now` gives the times that are shown; no decision about a lease depends on it."""
        self._database = database
        self._now = now

    async def submit(self, new: NewJob) -> tuple[Job, bool]:
        """Accept a job, or find the one that this request made before (then False, and nothing is paid).

        Raises IdempotencyMismatch, QuotaExceeded, Overloaded; nothing is stored then.
        """
        idempotency = hashlib.sha256(new.idempotency_key.encode()).hexdigest() if new.idempotency_key else ""
        now = self._now()
        async with self._database.write() as connection:
            await _one_at_a_time(connection, new.owner)
            known = await _made_before(connection, new, idempotency, now)
            if known is not None:
                return job_from(known), False
            await _refuse_if_full(connection, new.owner)
            job_id = str(ULID.from_timestamp(now))
            made = await connection.execute(
                insert(jobs)
                .values(
                    id=job_id,
                    owner=new.owner,
                    key_id=new.key_id,
                    surface=new.surface,
                    lane=new.lane,
                    strategy=new.request.strategy if new.request.kind == "run" else new.request.kind,
                    state=JobState.QUEUED,
                    request=to_json(new.request),
                    background=new.background,
                    created_unix_s=now,
                    body_sha256=new.body_sha256,
                    idempotency_sha256=idempotency,
                    reserve_tokens=new.reserve_tokens,
                    reserved_day=await budgets.reserve(connection, new.key_id, new.reserve_tokens, now),
                    turn=await _next_turn(connection, new.owner, new.lane),
                    work_tokens=new.work_tokens,
                    gateway_id=new.gateway_id,
                    last_seq=1,
                )
                .returning(*jobs.c)
            )
            job = job_from(made.one())
            await insert_events(connection, job_id, 0, [NewEvent(kind="job.queued", data={})], now)
            texts = sorted({document.text_sha256 for document in new.request.documents})
            if texts:
                await connection.execute(
                    insert(job_documents), [{"job_id": job_id, "text_sha256": sha256} for sha256 in texts]
                )
            return job, True

    async def find(self, job_id: str, owner: str) -> Job | None:
        """None also for a job of someone else."""
        async with self._database.read() as connection:
            found = await connection.execute(select(*jobs.c).where(jobs.c.id == job_id, jobs.c.owner == owner))
            row = found.one_or_none()
        return job_from(row) if row is not None else None

    async def list_jobs(self, owner: str, *, limit: int = 20, after: str = "") -> list[Job]:
        """Newest first; `after` is the last id of the page before."""
        wanted = select(*jobs.c).where(jobs.c.owner == owner).order_by(jobs.c.id.desc()).limit(limit)
        if after:
            wanted = wanted.where(jobs.c.id < after)
        async with self._database.read() as connection:
            return [job_from(row) for row in await connection.execute(wanted)]

    async def events(self, job_id: str, *, after_seq: int = 0, limit: int = 1000) -> list[EventRecord]:
        """In order of seq. The caller has checked whose job it is."""
        wanted = select(*events.c).where(events.c.job_id == job_id, events.c.seq > after_seq)
        async with self._database.read() as connection:
            found = await connection.execute(wanted.order_by(events.c.seq).limit(limit))
            return [event_from(row) for row in found]

    async def heads(self, job_ids: Collection[str]) -> dict[str, tuple[int, JobState]]:
        """Last seq and state of each job that exists, in one query. An event below the last seq can be read."""
        if not job_ids:
            return {}
        async with self._database.read() as connection:
            found = await connection.execute(
                select(jobs.c.id, jobs.c.last_seq, jobs.c.state).where(jobs.c.id.in_(list(job_ids)))
            )
            return {row.id: (row.last_seq, JobState(row.state)) for row in found}

    async def request_cancel(self, job_id: str, owner: str) -> Job | None:
        """Queued or paused → cancelled at once; running → its runner is told at its next beat; ended → as it is."""
        mine = (jobs.c.id == job_id, jobs.c.owner == owner)
        async with self._database.write() as connection:
            row = await _locked(connection, *mine)
            if row is None:
                return None
            if row.state in (JobState.QUEUED, JobState.PAUSED):
                await end_job(connection, row, JobState.CANCELLED, self._now())
            elif row.state == JobState.RUNNING:
                await connection.execute(update(jobs).where(*mine).values(cancel_requested=True))
            return job_from(await _locked(connection, *mine))

    async def retry(self, job_id: str, owner: str) -> Job | None:
        """Failed or cancelled → queued, paid for like a new one; its history goes on. WrongState for the others."""
        mine = (jobs.c.id == job_id, jobs.c.owner == owner)
        now = self._now()
        async with self._database.write() as connection:
            await _one_at_a_time(connection, owner)
            row = await _locked(connection, *mine)
            if row is None:
                return None
            if row.state not in (JobState.FAILED, JobState.CANCELLED):
                raise WrongState(f"The job is {row.state}; only a failed or cancelled job can be tried again.")
            await self._begin_again(connection, row, now)
            return job_from(await _locked(connection, *mine))

    async def _begin_again(self, connection: AsyncConnection, row: Any, now: float, **values: Any) -> None:
        """An ended job back into the queue, with these values of its row besides."""
        await _refuse_if_full(connection, row.owner)
        fresh = dict.fromkeys(("started_unix_s", "finished_unix_s", "result", "error", "usage", "progress"))
        reserved_day = await budgets.reserve(connection, row.key_id, row.reserve_tokens, now)
        await _queue(connection, row, now, **fresh, cancel_requested=False, reserved_day=reserved_day, **values)

    async def paused_at(self, job_id: str) -> EventRecord | None:
        """Where the job was paused the last time: step, before, state. The caller has checked whose job it is."""
        wanted = select(*events.c).where(events.c.job_id == job_id, events.c.kind == PAUSED_KIND)
        async with self._database.read() as connection:
            found = await connection.execute(wanted.order_by(events.c.seq.desc()).limit(1))
            row = found.one_or_none()
        return event_from(row) if row is not None else None

    async def resume(self, job_id: str, owner: str, state: str | None, pause_before: str) -> Job | None:
        """Paused → queued, with `state` in the place of the one it was paused at, to the next `pause_before`.

        So does a job that failed because an edited state did not fit. WrongState for all others.
        """
        mine = (jobs.c.id == job_id, jobs.c.owner == owner)
        now, at = self._now(), await self.paused_at(job_id)
        async with self._database.write() as connection:
            row = await _locked(connection, *mine)
            if row is None:
                return None
            job = job_from(row)
            refused = job.state is JobState.FAILED and (job.error or {}).get("type") == StateInvalid.__name__
            if at is None or not (job.state is JobState.PAUSED or refused):
                raise WrongState(f"The job is {row.state}; only a paused job can be resumed.")
            request = to_json(_go_on(job.request, at.data, state, pause_before, keeps_edit=not refused))
            if refused:
                await _one_at_a_time(connection, owner)
                await self._begin_again(connection, row, now, request=request)
            else:
                await _queue(connection, row, now, request=request)
            return job_from(await _locked(connection, *mine))

    async def take_up(
        self, job_id: str, runner_id: str, *, pause_before: str = "", max_steps: int | None = None
    ) -> Claim | None:
        """Claim a job that rests or waits, for the runner of a command that runs nothing else. None: there is none.

        WrongState for a job that runs, or has its answer.
        """
        now, at = self._now(), await self.paused_at(job_id)
        async with self._database.write() as connection:
            row = await _locked(connection, jobs.c.id == job_id)
            if row is None:
                return None
            job = job_from(row)
            if job.state in (JobState.RUNNING, JobState.COMPLETED):
                raise WrongState(f"The job is {job.state}; there is nothing to resume.")
            looked_at = at.data["step"] if at is not None and job.state is JobState.PAUSED else job.request.looked_at
            request = to_json(replace(job.request, pause_before=pause_before, max_steps=max_steps, looked_at=looked_at))
            changes = {"request": request, "lane": Lane.LOCAL}
            if job.state in TERMINAL:
                await self._begin_again(connection, row, now, **changes)
            elif job.state is JobState.PAUSED:
                await _queue(connection, row, now, **changes)
            else:
                await connection.execute(update(jobs).where(jobs.c.id == job_id).values(**changes))
            return await self._take(connection, runner_id, job_id)

    async def take_over(self, job_id: str, runner_id: str, watch: LeaseWatch) -> Claim | None:
        """Claim a running job whose lease `watch` has seen stand still; else None. Call it every second or two."""
        async with self._database.read() as connection:
            found = await connection.execute(
                select(jobs.c.fence, jobs.c.beat).where(jobs.c.id == job_id, jobs.c.state == JobState.RUNNING)
            )
            leases = [Lease(job_id, row.fence, row.beat) for row in found]
        if not (still := watch.look(leases)):
            return None
        async with self._database.write() as connection:
            return await self._take(connection, runner_id, still[0])

    async def end_abandoned(self, watch: LeaseWatch) -> int:
        """Cancel the jobs of commands whose processes are gone: nobody waits for them; returns how many."""
        async with self._database.read() as connection:
            found = await connection.execute(
                select(jobs.c.id, jobs.c.fence, jobs.c.beat).where(
                    jobs.c.state == JobState.RUNNING, jobs.c.lane == Lane.LOCAL
                )
            )
            still = watch.look(Lease(row.id, row.fence, row.beat) for row in found)
        ended = 0
        for lease in still:
            async with self._database.write() as connection:
                held = (jobs.c.state == JobState.RUNNING, jobs.c.fence == lease.fence, jobs.c.beat == lease.beat)
                if (row := await _locked(connection, jobs.c.id == lease.job_id, *held)) is not None:
                    await end_job(connection, row, JobState.CANCELLED, self._now())
                    ended += 1
        return ended

    async def edit(self, job_id: str, at: Checkpoint) -> Job | None:
        """Pause a job that rests before the step `at`, to go on from `at.edited`, or else from the step's own state.

        Its result, and the edits and states of later steps, no longer hold. WrongState for a job that waits or runs.
        """
        now = self._now()
        async with self._database.write() as connection:
            row = await _locked(connection, jobs.c.id == job_id)
            if row is None:
                return None
            job = job_from(row)
            if job.state not in {JobState.PAUSED, *TERMINAL}:
                raise WrongState(f"The job is {job.state}; wait for its end, or cancel it, before you edit it.")
            history = [NewEvent(kind="job.edited", data={"step": at.number, "before": at.name}), _paused_event(at)]
            fresh = dict.fromkeys(("started_unix_s", "finished_unix_s", "result", "error", "usage"))
            changes = {
                "state": JobState.PAUSED,
                "request": to_json(_edited(job.request, at)),
                "last_seq": await insert_events(connection, job_id, row.last_seq, history, now),
                "cancel_requested": False,
                "reserved_day": row.reserved_day
                or await budgets.reserve(connection, row.key_id, row.reserve_tokens, now),
            }
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(**fresh, **changes))
            return job_from(await _locked(connection, jobs.c.id == job_id))

    async def fork(self, job_id: str, at: Checkpoint, before: Sequence[Checkpoint]) -> Job | None:
        """A job of its own, paused before the step `at`, with the request of this one and `before`, its states."""
        now = self._now()
        async with self._database.write() as connection:
            row = await _locked(connection, jobs.c.id == job_id)
            if row is None:
                return None
            request = replace(_edited(request_from(row.request), at), origin=job_id)
            inherited = [replace(step, origin=step.origin or job_id) for step in before if step.number < at.number]
            history = [
                NewEvent(kind="job.forked", data={"origin": job_id}),
                *(NewEvent(kind="step", data=step_record(step)) for step in inherited),
                _paused_event(replace(at, origin=job_id)),
            ]
            fork_id = str(ULID.from_timestamp(now))
            kept = ("owner", "key_id", "surface", "lane", "strategy", "background", "reserve_tokens")
            made = await connection.execute(
                insert(jobs)
                .values(
                    **{name: getattr(row, name) for name in kept},
                    id=fork_id,
                    state=JobState.PAUSED,
                    request=to_json(request),
                    created_unix_s=now,
                    reserved_day=await budgets.reserve(connection, row.key_id, row.reserve_tokens, now),
                    last_seq=len(history),
                )
                .returning(*jobs.c)
            )
            fork = job_from(made.one())
            await insert_events(connection, fork_id, 0, history, now)
            texts = select(literal(fork_id), job_documents.c.text_sha256).where(job_documents.c.job_id == job_id)
            await connection.execute(insert(job_documents).from_select(["job_id", "text_sha256"], texts))
            return fork

    async def steps(self, job_id: str) -> list[EventRecord]:
        """The records that say which states the job's run has come to (`job_steps.read_checkpoints`)."""
        wanted = select(*events.c).where(events.c.job_id == job_id, events.c.kind.in_(STEP_KINDS))
        async with self._database.read() as connection:
            return [event_from(row) for row in await connection.execute(wanted.order_by(events.c.seq))]

    async def find_any(self, beginning: str) -> list[Job]:
        """Of all owners, the newest jobs whose ids begin so: for who sits at the machine. At most two."""
        wanted = select(*jobs.c).where(jobs.c.id.startswith(beginning, autoescape=True))
        async with self._database.read() as connection:
            return [job_from(row) for row in await connection.execute(wanted.order_by(jobs.c.id.desc()).limit(2))]

    async def list_all(self, *, limit: int) -> list[Job]:
        """Of all owners, newest first."""
        async with self._database.read() as connection:
            found = await connection.execute(select(*jobs.c).order_by(jobs.c.id.desc()).limit(limit))
            return [job_from(row) for row in found]

    async def delete(self, job_id: str, owner: str) -> bool:
        """Remove a job that has ended, with its events; False if there is none. WrongState while it has not ended."""
        async with self._database.write() as connection:
            row = await _locked(connection, jobs.c.id == job_id, jobs.c.owner == owner)
            if row is None:
                return False
            if JobState(row.state) not in TERMINAL:
                raise WrongState(f"The job is {row.state}; cancel it, and delete it when it has ended.")
            await self._delete(connection, [job_id])
            return True

    async def _delete(self, connection: AsyncConnection, job_ids: Sequence[str]) -> None:
        for table in (events, job_documents):
            await connection.execute(delete(table).where(table.c.job_id.in_(job_ids)))
        await connection.execute(delete(jobs).where(jobs.c.id.in_(job_ids)))
        now = self._now()
        await connection.execute(
            insert(deleted_jobs), [{"job_id": job_id, "deleted_unix_s": now} for job_id in job_ids]
        )

    async def prune(self, *, before_unix_s: float, max_jobs: int) -> int:
        """Delete jobs that ended before a moment, and the oldest beyond so many (0: any number); return how many."""
        ended = jobs.c.state.in_(TERMINAL)
        removed = 0
        while True:
            async with self._database.write() as connection:
                kept = await connection.scalar(select(func.count()).select_from(jobs).where(ended)) or 0
                wanted = select(jobs.c.id).where(ended).order_by(jobs.c.finished_unix_s).limit(_PRUNED_AT_ONCE)
                found = (await connection.scalars(wanted.where(jobs.c.finished_unix_s < before_unix_s))).all()
                if not found and max_jobs and kept > max_jobs:
                    found = (await connection.scalars(wanted.limit(min(_PRUNED_AT_ONCE, kept - max_jobs)))).all()
                if not found:
                    old = deleted_jobs.c.deleted_unix_s < self._now() - _DELETED_KEPT_S
                    await connection.execute(delete(deleted_jobs).where(old))
                    return removed
                await self._delete(connection, found)
                removed += len(found)

    async def deleted_jobs(self, *, since_unix_s: float) -> list[tuple[str, float]]:
        """Id and time of those that were deleted since, in their order."""
        wanted = select(*deleted_jobs.c).where(deleted_jobs.c.deleted_unix_s >= since_unix_s)
        async with self._database.read() as connection:
            found = await connection.execute(wanted.order_by(deleted_jobs.c.deleted_unix_s))
            return [(row.job_id, row.deleted_unix_s) for row in found]

    async def queue_ahead(self, owner: str, lane: Lane) -> QueueAhead:
        """What a job of `owner` would wait for in `lane` if it were submitted now."""
        columns = select(func.count(), func.coalesce(func.sum(jobs.c.work_tokens), 0))
        async with self._database.read() as connection:
            turn = await _next_turn(connection, owner, lane)
            queued = (jobs.c.state == JobState.QUEUED, jobs.c.lane == lane, jobs.c.turn <= turn)
            waiting, tokens = (await connection.execute(columns.where(*queued))).one()
            running = (
                await connection.execute(
                    select(jobs.c.work_tokens, jobs.c.progress).where(
                        jobs.c.state == JobState.RUNNING, jobs.c.lane == lane
                    )
                )
            ).all()
        left = sum(max(0, row.work_tokens - _computed_tokens(row.progress)) for row in running)
        return QueueAhead(jobs=waiting, running=len(running), tokens=int(tokens) + left)

    async def attend(self, job_id: str, gateway_id: str) -> None:
        """The job's client waits at this gateway now."""
        async with self._database.write() as connection:
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(gateway_id=gateway_id))

    async def attended(self) -> list[Job]:
        """The jobs that go on only as long as a client waits for them."""
        wanted = select(*jobs.c).where(
            jobs.c.background.is_(False), jobs.c.state.in_([JobState.QUEUED, JobState.RUNNING, JobState.PAUSED])
        )
        async with self._database.read() as connection:
            return [job_from(row) for row in await connection.execute(wanted)]

    async def counts(self) -> dict[tuple[str, str], int]:
        """(state, strategy) → jobs that are kept."""
        wanted = select(jobs.c.state, jobs.c.strategy, func.count()).group_by(jobs.c.state, jobs.c.strategy)
        async with self._database.read() as connection:
            return {(state, strategy): number for state, strategy, number in await connection.execute(wanted)}

    async def totals(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Metric name and sorted labels → value, counted up by every job that ended."""
        async with self._database.read() as connection:
            found = await connection.execute(select(*totals.c))
            return {(row.name, tuple(sorted(json.loads(row.labels).items()))): row.value for row in found}

    # --- what runners do ---

    def change_mark(self) -> object | None:
        """`Database.change_mark`."""
        return self._database.change_mark()

    async def claim(self, runner_id: str, lane: Lane, watch: LeaseWatch) -> Claim | None:
        """A job of the lane whose lease `watch` has seen stand still, or the next of the queue; else None.

        Call it every second or two, also when it gave None: a lease is watched only by looking. Appends job.started.
        """
        async with self._database.read() as connection:
            running = await connection.execute(
                select(jobs.c.id, jobs.c.lane, jobs.c.fence, jobs.c.beat).where(jobs.c.state == JobState.RUNNING)
            )
            lanes = {Lease(row.id, row.fence, row.beat): row.lane for row in running}
            queued = await connection.scalar(_next_queued(lane))
        still = [lease for lease in watch.look(lanes) if lanes[lease] == lane]
        if not still and queued is None:
            return None
        async with self._database.write() as connection:
            for lease in sorted(still, key=lambda lease: lease.job_id):
                if claim := await self._take(connection, runner_id, lease):
                    return claim
            # Postgres: a row that another runner is just taking is passed over.
            job_id = await connection.scalar(_next_queued(lane).with_for_update(of=jobs, skip_locked=True))
            return await self._take(connection, runner_id, job_id) if job_id else None

    async def _take(self, connection: AsyncConnection, runner_id: str, wanted: Lease | str) -> Claim | None:
        if isinstance(wanted, Lease):
            job_id = wanted.job_id
            unchanged = [jobs.c.state == JobState.RUNNING, jobs.c.fence == wanted.fence, jobs.c.beat == wanted.beat]
        else:
            job_id, unchanged = wanted, [jobs.c.state == JobState.QUEUED]
        now = self._now()
        taken = await connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id, *unchanged)
            .values(
                state=JobState.RUNNING,
                runner_id=runner_id,
                fence=jobs.c.fence + 1,
                beat=0,
                attempt=jobs.c.attempt + 1,
                last_seq=jobs.c.last_seq + 1,
                started_unix_s=now,
            )
            .returning(*jobs.c)
        )
        row = taken.one_or_none()
        if row is None:
            return None
        await insert_events(
            connection, job_id, row.last_seq - 1, [NewEvent(kind="job.started", data={"attempt": row.attempt})], now
        )
        return Claim(job=job_from(row), fence=row.fence)

    async def beat(self, claims: Sequence[Claim], status: RunnerStatus | None = None) -> dict[str, bool]:
        """Renew leases, and keep the holder's `status`, in one transaction.

        Returns job id → whether cancelling was asked for. A lease that is lost is missing.
        """
        if not claims and status is None:
            return {}
        renewed: dict[str, bool] = {}
        async with self._database.write() as connection:
            if status is not None:
                await self._report(connection, status)
            for claim in sorted(claims, key=lambda claim: claim.job.id):  # one order: no deadlock on Postgres
                found = await connection.execute(
                    update(jobs)
                    .where(jobs.c.id == claim.job.id, jobs.c.fence == claim.fence, jobs.c.state == JobState.RUNNING)
                    .values(beat=jobs.c.beat + 1)
                    .returning(jobs.c.cancel_requested)
                )
                row = found.one_or_none()
                if row is not None:
                    renewed[claim.job.id] = bool(row.cancel_requested)
        return renewed

    async def look_at_leases(self, claims: Sequence[Claim]) -> dict[str, bool]:
        """What `beat` returns, renewing nothing: one query for all, so that it can be asked often."""
        if not claims:
            return {}
        fences = {claim.job.id: claim.fence for claim in claims}
        async with self._database.read() as connection:
            found = await connection.execute(
                select(jobs.c.id, jobs.c.fence, jobs.c.cancel_requested).where(
                    jobs.c.id.in_(list(fences)), jobs.c.state == JobState.RUNNING
                )
            )
            return {row.id: bool(row.cancel_requested) for row in found if row.fence == fences[row.id]}

    async def append(
        self,
        claim: Claim,
        events: Sequence[NewEvent],
        *,
        plan: Mapping[str, Any] | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        """Add to the history, in this order; an event whose key is there already is dropped. Raises LeaseLost."""
        if await self.append_all([Update(claim=claim, events=events, plan=plan, progress=progress)]):
            raise LeaseLost

    async def append_all(self, updates: Sequence[Update]) -> set[str]:
        """`append` for several jobs in one transaction; returns the ids of those whose lease is lost."""
        lost: set[str] = set()
        async with self._database.write() as connection:
            for update in sorted(updates, key=lambda update: update.claim.job.id):  # one order: no deadlock on Postgres
                try:
                    await self._held_with(connection, update.claim, update)
                except LeaseLost:
                    lost.add(update.claim.job.id)
        return lost

    async def finish(
        self,
        claim: Claim,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
        totals: Totals = {},  # noqa: B006 never changed
        last: Update | None = None,
    ) -> None:
        """End the job: what it told `last`, state, terminal event, the key's budget and the durable counters.

        All or nothing. Raises LeaseLost.
        """
        assert state in TERMINAL
        assert (result is not None) == (state is JobState.COMPLETED), (
            "a result belongs to a completed job, and only there"
        )
        assert (error is not None) == (state is JobState.FAILED), "an error belongs to a failed job, and only there"
        async with self._database.write() as connection:
            row = await self._held_with(connection, claim, last)
            await end_job(connection, row, state, self._now(), result=result, error=error, usage=usage)
            for (name, labels), value in sorted(totals.items()):
                await upsert(connection, _totals, {"name": name, "labels": to_json(dict(labels))}, add={"value": value})

    async def release(self, claim: Claim, *, counted: bool = False, last: Update | None = None) -> None:
        """Give a running job back to the queue; one that was to be cancelled is cancelled instead. Raises LeaseLost.

        Its attempts are counted to find the job that ends its runners; `counted` says that this one belongs to them.
        """
        await self._leave(claim, [], last, state=JobState.QUEUED, attempt=jobs.c.attempt - (0 if counted else 1))

    async def pause(self, claim: Claim, checkpoint: Checkpoint, *, last: Update | None = None) -> None:
        """Leave a running job before a step until a person lets it go on; its budget stays reserved. Raises LeaseLost.

        One that was to be cancelled is cancelled instead. The event has the state, so nothing else needs to keep it.
        """
        paused = {"step": checkpoint.number, "before": checkpoint.name, "state": json.loads(checkpoint.state)}
        await self._leave(claim, [NewEvent(kind=PAUSED_KIND, data=paused)], last, state=JobState.PAUSED)

    async def _leave(self, claim: Claim, events: Sequence[NewEvent], last: Update | None, **values: Any) -> None:
        async with self._database.write() as connection:
            row = await self._held_with(connection, claim, last)
            if row.cancel_requested:
                await end_job(connection, row, JobState.CANCELLED, self._now())
                return
            last_seq = await insert_events(connection, claim.job.id, row.last_seq, events, self._now())
            await connection.execute(
                update(jobs).where(jobs.c.id == claim.job.id).values(runner_id="", last_seq=last_seq, **values)
            )

    async def _held_with(self, connection: AsyncConnection, claim: Claim, last: Update | None) -> Row[Any]:
        """The job's row, locked, after what it told last was added. Raises LeaseLost."""
        row = await _held(connection, claim)
        if last is None:
            return row
        changes: dict[str, Any] = {
            "last_seq": await insert_events(connection, row.id, row.last_seq, last.events, self._now())
        }
        if last.plan is not None:
            changes["plan"] = to_json(last.plan)
        if last.progress is not None:
            changes["progress"] = to_json(last.progress)
        changed = await connection.execute(update(jobs).where(jobs.c.id == row.id).values(**changes).returning(*jobs.c))
        return changed.one()

    async def report_runner(self, status: RunnerStatus) -> None:
        async with self._database.write() as connection:
            await self._report(connection, status)

    async def _report(self, connection: AsyncConnection, status: RunnerStatus) -> None:
        now = self._now()
        await upsert(connection, runners, {"id": status.id}, put={"status": to_json(status), "reported_unix_s": now})
        await connection.execute(delete(runners).where(runners.c.reported_unix_s < now - _FORGOTTEN_S))

    async def bury_runner(self, runner_id: str) -> int:
        """A runner's process has ended, as its parent has seen: its jobs go back to the queue; returns how many.

        The attempt counts, as for every runner that died; a job that was to be cancelled is cancelled.
        """
        async with self._database.write() as connection:
            mine = (jobs.c.runner_id == runner_id, jobs.c.state == JobState.RUNNING)
            rows = (await connection.execute(select(*jobs.c).where(*mine).with_for_update())).all()
            for row in rows:
                if row.cancel_requested:
                    await end_job(connection, row, JobState.CANCELLED, self._now())
                else:
                    values = {"state": JobState.QUEUED, "runner_id": ""}
                    await connection.execute(update(jobs).where(jobs.c.id == row.id).values(**values))
            await connection.execute(delete(runners).where(runners.c.id == runner_id))
            return len(rows)

    async def forget_runner(self, runner_id: str) -> None:
        async with self._database.write() as connection:
            await connection.execute(delete(runners).where(runners.c.id == runner_id))

    async def runners(self) -> list[RunnerStatus]:
        """All that reported within a day, the dead ones too: whether `beat` moves is for the reader to see."""
        async with self._database.read() as connection:
            found = await connection.execute(select(runners.c.status).order_by(runners.c.id))
            return [runner_from(row.status) for row in found]


_totals = totals  # inside `finish` the name is a parameter's


async def insert_events(
    connection: AsyncConnection, job_id: str, last_seq: int, new: Sequence[NewEvent], now_unix_s: float
) -> int:
    """Insert what is new of `new` and return the last seq. The caller holds the job's row, and stores that number."""
    keys = [event.key for event in new if event.key]
    known: set[str] = set()
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        asked = keys[start : start + _KEYS_AT_ONCE]
        found = await connection.execute(select(events.c.key).where(events.c.job_id == job_id, events.c.key.in_(asked)))
        known.update(found.scalars())
    rows: list[dict[str, Any]] = []
    for event in new:
        if event.key in known:
            continue
        if event.key:
            known.add(event.key)
        last_seq += 1
        rows.append(
            {"job_id": job_id, "seq": last_seq, "kind": event.kind, "key": event.key}
            | {"data": to_json(event.data), "created_unix_s": now_unix_s}
        )
    if rows:
        await connection.execute(insert(events), rows)
    return last_seq


async def end_job(
    connection: AsyncConnection,
    row: Row[Any],
    state: JobState,
    now_unix_s: float,
    *,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    usage: Mapping[str, Any] | None = None,
) -> None:
    """Bring a job, whose row the caller holds, to its end: terminal event, budget, columns.

    Without `usage` it has used what it told of last: a job that waited when it was cancelled pays for what it had.
    """
    if usage is None and row.progress:
        usage = json.loads(row.progress).get("usage")
    assert state in NEXT[JobState(row.state)], f"{row.state} → {state}"
    data = {"state": state.value} | ({} if error is None else {"error": error})
    last_seq = await insert_events(
        connection, row.id, row.last_seq, [NewEvent(kind=f"job.{state.value}", data=data)], now_unix_s
    )
    await budgets.settle(connection, row.key_id, row.reserved_day, row.reserve_tokens, usage)
    await connection.execute(
        update(jobs)
        .where(jobs.c.id == row.id)
        .values(
            state=state,
            last_seq=last_seq,
            finished_unix_s=now_unix_s,
            reserved_day="",
            runner_id="",
            result=to_json_or_null(result),
            error=to_json_or_null(error),
            usage=to_json_or_null(usage),
        )
    )


async def _held(connection: AsyncConnection, claim: Claim) -> Row[Any]:
    """The job's row, locked. Raises LeaseLost unless the claim still holds."""
    row = (await connection.execute(select(*jobs.c).where(jobs.c.id == claim.job.id).with_for_update())).one_or_none()
    if row is None or row.fence != claim.fence or row.state != JobState.RUNNING:
        raise LeaseLost
    return row


def _next_queued(lane: Lane) -> Any:
    """The job that is taken next: of the owner who has the fewest running in the lane, then by turn, then by age."""
    running = (
        select(jobs.c.owner, func.count().label("places"))
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lane == lane)
        .group_by(jobs.c.owner)
        .subquery()
    )
    return (
        select(jobs.c.id)
        .outerjoin(running, running.c.owner == jobs.c.owner)
        .where(jobs.c.state == JobState.QUEUED, jobs.c.lane == lane)
        .order_by(func.coalesce(running.c.places, 0), jobs.c.turn, jobs.c.id)
        .limit(1)
    )


def _edited(request: JobRequest, at: Checkpoint) -> JobRequest:
    """The request of a job that goes on from `at`, as it was edited, or from the step's own state if it was not."""
    edits = tuple(edit for edit in request.edits if edit.step < at.number)
    if at.edited is not None:
        edits += (StepEdit(step=at.number, before=at.name, was=at.state, state=at.edited),)
    return replace(request, pause_before="", looked_at=at.number, edits=edits, revision=request.revision + 1)


def _paused_event(at: Checkpoint) -> NewEvent:
    return NewEvent(kind=PAUSED_KIND, data=step_record(at))


def _go_on(
    request: JobRequest, at: Mapping[str, Any], state: str | None, pause_before: str, *, keeps_edit: bool
) -> JobRequest:
    """The request of a job that a person lets go on from where it was paused, with another state if one is given."""
    others = tuple(edit for edit in request.edits if edit.step != at["step"])
    edits = request.edits if state is None and keeps_edit else others
    if state is not None and json.loads(state) != at["state"]:  # sent back as it was, it is no edit
        was = json.dumps(at["state"])
        edits += (StepEdit(step=at["step"], before=at["before"], was=was, state=state),)
    return replace(request, pause_before=pause_before, looked_at=at["step"], edits=edits)


async def _queue(connection: AsyncConnection, row: Any, now: float, **values: Any) -> None:
    """Back into the queue, its attempts counted anew."""
    assert JobState.QUEUED in NEXT[JobState(row.state)], f"{row.state} → queued"
    queued = [NewEvent(kind="job.queued", data={"again": True})]
    last_seq = await insert_events(connection, row.id, row.last_seq, queued, now)
    if row.lane == Lane.LOCAL:  # the command that asked for it has ended: others run it, unless a command takes it up
        values = {"lane": Lane.LONG} | values
    turn = await _next_turn(connection, row.owner, Lane(values.get("lane", row.lane)))
    values |= {"state": JobState.QUEUED, "attempt": 0, "last_seq": last_seq, "turn": turn}
    await connection.execute(update(jobs).where(jobs.c.id == row.id).values(**values))


def _computed_tokens(progress: str | None) -> int:
    """Prompt tokens that a running job has told of so far."""
    usage = json.loads(progress).get("usage", {}) if progress else {}
    return sum(stage.get("prompt_tokens", 0) for stage in usage.values())


async def _one_at_a_time(connection: AsyncConnection, owner: str) -> None:
    """Postgres: an owner's submissions follow one another, as all writes do on SQLite."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:owner, 0))"), {"owner": owner})


async def _made_before(
    connection: AsyncConnection, new: NewJob, idempotency: str, now_unix_s: float
) -> Row[Any] | None:
    if idempotency:
        row: Row[Any] | None = await _locked(
            connection, jobs.c.owner == new.owner, jobs.c.idempotency_sha256 == idempotency
        )
        if row is not None and row.body_sha256 != new.body_sha256:
            raise IdempotencyMismatch
        return row
    if not (new.attach_to_same_body and new.body_sha256):
        return None
    same = select(*jobs.c).where(
        jobs.c.owner == new.owner,
        jobs.c.key_id == new.key_id,
        jobs.c.body_sha256 == new.body_sha256,
        jobs.c.created_unix_s > now_unix_s - ATTACH_S,
        jobs.c.state.not_in([JobState.FAILED, JobState.CANCELLED]),
        jobs.c.cancel_requested.is_(False),
    )
    return (await connection.execute(same.order_by(jobs.c.id.desc()).limit(1))).one_or_none()


async def _refuse_if_full(connection: AsyncConnection, owner: str) -> None:
    queued = select(func.count()).select_from(jobs).where(jobs.c.state == JobState.QUEUED)
    if (await connection.scalar(queued) or 0) >= MAX_QUEUED:
        raise Overloaded(f"{MAX_QUEUED:,} jobs are waiting; try again later.")
    if (await connection.scalar(queued.where(jobs.c.owner == owner)) or 0) >= MAX_QUEUED_PER_OWNER:
        raise Overloaded(
            f"{MAX_QUEUED_PER_OWNER:,} of your jobs are waiting, and no owner may have more in the queue; "
            "submit this one when some of them have started, or cancel some."
        )


async def _next_turn(connection: AsyncConnection, owner: str, lane: Lane) -> int:
    """The turn of a job that its owner puts into a lane's queue: one behind his last, and no earlier than the queue's.

    So owners who have jobs in the queue alternate, and who comes late begins where the others are now.
    """
    queued = (jobs.c.state == JobState.QUEUED, jobs.c.lane == lane)
    now_at = await connection.scalar(select(func.min(jobs.c.turn)).where(*queued))
    last_own = await connection.scalar(select(func.max(jobs.c.turn)).where(*queued, jobs.c.owner == owner))
    return max(now_at or 0, 0 if last_own is None else last_own + 1)


async def _locked(connection: AsyncConnection, *conditions: Any) -> Any:
    """The row that meets the conditions, held on Postgres till the transaction ends; None if there is none."""
    return (await connection.execute(select(*jobs.c).where(*conditions).with_for_update())).one_or_none()
