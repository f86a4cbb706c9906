"""Jobs and their events in the database: what gateways ask for here, what runners do in `leased_jobs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from ulid import ULID

from pipeline.errors import IdempotencyMismatch, Overloaded, StateInvalid, WrongState
from serving.jobs.job import NEXT, TERMINAL, EventRecord, Job, JobRequest, JobState, NewEvent, NewJob, StepEdit
from serving.jobs.lease_watch import LEASE_S, LeaseWatch
from serving.jobs.leases import PAUSED_KIND, LeasedJobs, end_job, insert_events
from serving.jobs.rows import event_from, job_from
from serving.storage import budgets
from serving.storage.json_columns import to_json
from serving.storage.schema import events, job_documents, jobs, totals

__all__ = ["LEASE_S", "MOST_QUEUED", "JobStore", "LeaseWatch"]

MOST_QUEUED = 10_000
"""Jobs that wait; beyond it a new one is refused, for it would wait for days."""
ATTACH_S = 900.0
"""How long a repeated request without an idempotency key finds the job of the first."""


class JobStore(LeasedJobs):
    """Jobs, scoped by owner: to everyone else an id does not exist."""

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
            await _refuse_if_full(connection)
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
        await _refuse_if_full(connection)
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
            request = to_json(_go_on(job.request, at.data, state, pause_before))
            if refused:
                await _one_at_a_time(connection, owner)
                await self._begin_again(connection, row, now, request=request)
            else:
                await _queue(connection, row, now, request=request)
            return job_from(await _locked(connection, *mine))

    async def delete(self, job_id: str, owner: str) -> bool:
        """Remove a job that has ended, with its events; False if there is none. WrongState while it has not ended."""
        async with self._database.write() as connection:
            row = await _locked(connection, jobs.c.id == job_id, jobs.c.owner == owner)
            if row is None:
                return False
            if JobState(row.state) not in TERMINAL:
                raise WrongState(f"The job is {row.state}; cancel it, and delete it when it has ended.")
            for table in (events, job_documents):
                await connection.execute(delete(table).where(table.c.job_id == job_id))
            await connection.execute(delete(jobs).where(jobs.c.id == job_id))
            return True

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


def _go_on(request: JobRequest, at: Mapping[str, Any], state: str | None, pause_before: str) -> JobRequest:
    """The request of a job that a person lets go on from where it was paused."""
    edits = tuple(edit for edit in request.edits if edit.step != at["step"])
    if state is not None and json.loads(state) != at["state"]:  # sent back as it was, it is no edit
        was = json.dumps(at["state"])
        edits += (StepEdit(step=at["step"], before=at["before"], was=was, state=state),)
    return replace(request, pause_before=pause_before, looked_at=at["step"], edits=edits)


async def _queue(connection: AsyncConnection, row: Any, now: float, **values: Any) -> None:
    """Back into the queue, its attempts counted anew."""
    assert JobState.QUEUED in NEXT[JobState(row.state)], f"{row.state} → queued"
    queued = [NewEvent(kind="job.queued", data={"again": True})]
    last_seq = await insert_events(connection, row.id, row.last_seq, queued, now)
    await connection.execute(
        update(jobs).where(jobs.c.id == row.id).values(state=JobState.QUEUED, attempt=0, last_seq=last_seq, **values)
    )


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


async def _refuse_if_full(connection: AsyncConnection) -> None:
    waiting = await connection.scalar(select(func.count()).select_from(jobs).where(jobs.c.state == JobState.QUEUED))
    if (waiting or 0) >= MOST_QUEUED:
        raise Overloaded(f"{MOST_QUEUED:,} jobs are waiting; try again later.")


async def _locked(connection: AsyncConnection, *conditions: Any) -> Any:
    """The row that meets the conditions, held on Postgres till the transaction ends; None if there is none."""
    return (await connection.execute(select(*jobs.c).where(*conditions).with_for_update())).one_or_none()
