"""What runners do with jobs: claim, beat, append, finish, release, and tell how they are.

A lease has no clock. Every claim raises the job's fence, and every write of a holder is checked against it in its own
transaction: a holder that was overtaken while it slept can write nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pipeline.errors import LeaseLost
from pipeline.run.checkpoints import Checkpoint
from serving.jobs.job import NEXT, TERMINAL, Claim, JobState, Lane, NewEvent, RunnerStatus
from serving.jobs.lease_watch import Lease, LeaseWatch
from serving.jobs.rows import job_from, runner_from
from serving.storage import budgets
from serving.storage.database import Database
from serving.storage.json_columns import to_json, to_json_or_null
from serving.storage.schema import events, jobs, runners, totals
from serving.storage.upsert import upsert

Totals = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""Metric name and sorted labels → value."""
PAUSED_KIND = f"job.{JobState.PAUSED}"
_FORGOTTEN_S = 86_400.0
_KEYS_AT_ONCE = 5_000
"""Databases take some 32,000 values in a statement."""


class LeasedJobs:
    """The runners' side of the store."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        """`now` gives the times that are shown; no decision about a lease depends on it."""
        self._database = database
        self._now = now

    def change_mark(self) -> object | None:
        """Another value whenever something was written; None where only a query would tell. Costs microseconds.

        A write within the same few milliseconds as the one before may be missed.
        """
        if self._database.path is None:
            return None
        found = self._database.path.stat()
        return found.st_mtime_ns, found.st_size

    async def claim(self, runner_id: str, lane: Lane, watch: LeaseWatch) -> Claim | None:
        """The oldest job of the lane that is queued, or whose lease `watch` has seen stand still; else None.

        Call it every second or two, also when it gave None: a lease is watched only by looking. Appends job.started.
        """
        async with self._database.read() as connection:
            running = await connection.execute(
                select(jobs.c.id, jobs.c.lane, jobs.c.fence, jobs.c.beat).where(jobs.c.state == JobState.RUNNING)
            )
            lanes = {Lease(row.id, row.fence, row.beat): row.lane for row in running}
            queued = await connection.scalar(_oldest_queued(lane))
        still = [lease for lease in watch.look(lanes) if lanes[lease] == lane]
        if not still and queued is None:
            return None
        async with self._database.write() as connection:
            for lease in sorted(still, key=lambda lease: lease.job_id):
                if claim := await self._take(connection, runner_id, lease):
                    return claim
            # Postgres: a row that another runner is just taking is passed over.
            job_id = await connection.scalar(_oldest_queued(lane).with_for_update(skip_locked=True))
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

    async def beat(self, claims: Sequence[Claim]) -> dict[str, bool]:
        """Renew leases; job id → whether cancelling was asked for. A lease that is lost is missing from the result."""
        if not claims:
            return {}
        renewed: dict[str, bool] = {}
        async with self._database.write() as connection:
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
        async with self._database.write() as connection:
            row = await _held(connection, claim)
            changes: dict[str, Any] = {
                "last_seq": await insert_events(connection, claim.job.id, row.last_seq, events, self._now())
            }
            if plan is not None:
                changes["plan"] = to_json(plan)
            if progress is not None:
                changes["progress"] = to_json(progress)
            await connection.execute(update(jobs).where(jobs.c.id == claim.job.id).values(**changes))

    async def finish(
        self,
        claim: Claim,
        state: JobState,
        *,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
        totals: Totals = {},  # noqa: B006 never changed
    ) -> None:
        """End the job: state, terminal event, the key's budget and the durable counters, all or nothing. LeaseLost."""
        assert state in TERMINAL
        assert (result is not None) == (state is JobState.COMPLETED), (
            "a result belongs to a completed job, and only there"
        )
        assert (error is not None) == (state is JobState.FAILED), "an error belongs to a failed job, and only there"
        async with self._database.write() as connection:
            row = await _held(connection, claim)
            await end_job(connection, row, state, self._now(), result=result, error=error, usage=usage)
            for (name, labels), value in sorted(totals.items()):
                await upsert(connection, _totals, {"name": name, "labels": to_json(dict(labels))}, add={"value": value})

    async def release(self, claim: Claim, *, counted: bool = False) -> None:
        """Give a running job back to the queue; one that was to be cancelled is cancelled instead. Raises LeaseLost.

        Its attempts are counted to find the job that ends its runners; `counted` says that this one belongs to them.
        """
        await self._leave(claim, [], state=JobState.QUEUED, attempt=jobs.c.attempt - (0 if counted else 1))

    async def pause(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Leave a running job before a step until a person lets it go on; its budget stays reserved. Raises LeaseLost.

        One that was to be cancelled is cancelled instead. The event has the state, so nothing else needs to keep it.
        """
        told = {"step": checkpoint.number, "before": checkpoint.name, "state": json.loads(checkpoint.state)}
        await self._leave(claim, [NewEvent(kind=PAUSED_KIND, data=told)], state=JobState.PAUSED)

    async def _leave(self, claim: Claim, events: Sequence[NewEvent], **values: Any) -> None:
        async with self._database.write() as connection:
            row = await _held(connection, claim)
            if row.cancel_requested:
                await end_job(connection, row, JobState.CANCELLED, self._now())
                return
            last_seq = await insert_events(connection, claim.job.id, row.last_seq, events, self._now())
            await connection.execute(
                update(jobs).where(jobs.c.id == claim.job.id).values(runner_id="", last_seq=last_seq, **values)
            )

    async def report_runner(self, status: RunnerStatus) -> None:
        now = self._now()
        async with self._database.write() as connection:
            await upsert(
                connection, runners, {"id": status.id}, put={"status": to_json(status), "reported_unix_s": now}
            )
            await connection.execute(delete(runners).where(runners.c.reported_unix_s < now - _FORGOTTEN_S))

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


def _oldest_queued(lane: Lane) -> Any:
    return select(jobs.c.id).where(jobs.c.state == JobState.QUEUED, jobs.c.lane == lane).order_by(jobs.c.id).limit(1)
