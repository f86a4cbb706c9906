"""Jobs: what they are asked, what becomes of them, and that nobody sees another's."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from sqlalchemy import update

from pipeline.errors import IdempotencyMismatch, Overloaded, WrongState
from pipeline.run.checkpoints import Checkpoint
from serving.jobs import store as job_store
from serving.jobs.job import NEXT, TERMINAL, Claim, Job, JobRequest, JobState, Lane, NewEvent, StepEdit
from serving.jobs.rows import request_from
from serving.jobs.store import ATTACH_S, JobStore, LeaseWatch
from serving.storage.database import Database
from serving.storage.document_ref import DocumentRef
from serving.storage.json_columns import to_json
from serving.storage.schema import jobs
from tests.integration.storage.factories import OWNER, Clock, claim, kinds, new_job, state_of, submit

DOCUMENT = DocumentRef(
    text_sha256="a" * 64, name="b\0o\ud800ok\r\n.txt", characters=9, sources=(("page 1", 0, 9, "utf-8"),)
)
REQUEST = JobRequest(
    question="灯塔 \0 \ud83d \U0001f600?",
    documents=(DOCUMENT,),
    choices=("a", "b"),
    options={"chunk_tokens": 100},
    limits={"calls": 3.0},
    messages=({"role": "user", "content": "hello"},),
    metadata={"a": "b"},
)


async def test_a_job_comes_back_as_it_was_given(store: JobStore) -> None:
    made = await submit(store, request=REQUEST, background=False, surface="chat", lane=Lane.SHORT)
    found = await store.find(made.id, OWNER)
    assert found == made
    assert found is not None
    assert (found.request, found.background, found.surface, found.lane) == (REQUEST, False, "chat", Lane.SHORT)
    assert (found.state, found.attempt, found.fence, found.last_seq) == (JobState.QUEUED, 0, 0, 1)


def test_rows_of_other_versions_are_read() -> None:
    old = request_from('{"question":"q","documents":[{"text_sha256":"x","name":"n"}]}')
    assert old == JobRequest(question="q", documents=(DocumentRef(text_sha256="x", name="n"),))
    newer = request_from('{"question":"q","invented":1,"documents":[{"text_sha256":"x","name":"n","more":[]}]}')
    assert newer == old
    assert request_from(to_json(REQUEST)) == REQUEST


async def test_a_job_runs_to_its_end_and_tells_it(store: JobStore) -> None:
    job = await submit(store)
    held = await claim(store)
    assert (held.job.id, held.job.state, held.job.attempt, held.fence) == (job.id, JobState.RUNNING, 1, 1)
    await store.append(held, [NewEvent(kind="plan", data={"calls": 2})], plan={"calls": 2}, progress={"stages": {}})
    await store.finish(held, JobState.COMPLETED, result={"text": "x"}, usage={"map": {"prompt_tokens": 5}})
    assert await kinds(store, job.id) == ["job.queued", "job.started", "plan", "job.completed"]
    done = await store.find(job.id, OWNER)
    assert done is not None
    assert (done.state, done.result, done.error) == (JobState.COMPLETED, {"text": "x"}, None)
    assert (done.plan, done.progress) == ({"calls": 2}, {"stages": {}})
    assert done.last_seq == 4


async def test_jobs_of_a_lane_run_in_the_order_of_their_coming(store: JobStore, clock: Clock) -> None:
    ids = []
    for lane in (Lane.LONG, Lane.SHORT, Lane.LONG):
        ids.append((await submit(store, lane=lane)).id)
        clock.pass_s(1)
    assert (await claim(store)).job.id == ids[0]
    assert (await claim(store)).job.id == ids[2]
    assert await store.claim("r1", Lane.LONG, LeaseWatch()) is None
    short = await store.claim("r1", Lane.SHORT, LeaseWatch())
    assert short is not None
    assert short.job.id == ids[1]


async def test_a_stranger_sees_nothing_and_moves_nothing(store: JobStore) -> None:
    job = await submit(store)
    assert await store.find(job.id, "stranger") is None
    assert await store.list_jobs("stranger") == []
    assert await store.request_cancel(job.id, "stranger") is None
    assert await store.retry(job.id, "stranger") is None
    assert await store.delete(job.id, "stranger") is False
    assert await state_of(store, job.id) is JobState.QUEUED


async def test_lists_are_newest_first_and_have_pages(store: JobStore, clock: Clock) -> None:
    made = []
    for _ in range(5):
        made.append((await submit(store)).id)
        clock.pass_s(1)
    first = [job.id for job in await store.list_jobs(OWNER, limit=2)]
    rest = [job.id for job in await store.list_jobs(OWNER, after=first[-1])]
    assert first + rest == made[::-1]


async def test_events_have_pages_and_heads_tell_the_last(store: JobStore) -> None:
    job = await submit(store)
    held = await claim(store)
    await store.append(held, [NewEvent(kind="chunk.mapped", data={"chunk": n}) for n in range(5)])
    page = await store.events(job.id, after_seq=3, limit=2)
    assert [(event.seq, event.data) for event in page] == [(4, {"chunk": 1}), (5, {"chunk": 2})]
    assert await store.heads([job.id, "unknown"]) == {job.id: (7, JobState.RUNNING)}
    assert await store.heads([]) == {}


async def test_an_event_that_is_told_again_is_dropped(store: JobStore) -> None:
    job = await submit(store)
    held = await claim(store)
    first = [NewEvent(kind="a", data={}, key="a"), NewEvent(kind="b", data={}), NewEvent(kind="a", data={}, key="a")]
    await store.append(held, first)
    await store.append(held, [*first, NewEvent(kind="c", data={}, key="c")])
    assert await kinds(store, job.id) == ["job.queued", "job.started", "a", "b", "b", "c"]
    assert [event.seq for event in await store.events(job.id)] == [1, 2, 3, 4, 5, 6]


async def test_seq_has_no_gap_nor_repetition_under_concurrent_appends(store: JobStore, other: Database) -> None:
    job = await submit(store)
    held = await claim(store)
    stores = (store, JobStore(other))
    async with asyncio.TaskGroup() as group:
        for number in range(30):
            told = [NewEvent(kind="x", data={"n": number}, key=f"{number % 20}"), NewEvent(kind="y", data={})]
            group.create_task(stores[number % 2].append(held, told))
    assert [event.seq for event in await store.events(job.id)] == list(range(1, 2 + 20 + 30 + 1))
    assert (await store.heads([job.id]))[job.id][0] == 52


# --- transitions -----------------------------------------------------------------------------------------------------


async def _bring_to(store: JobStore, state: JobState) -> tuple[Job, Claim | None]:
    job = await submit(store)
    if state is JobState.QUEUED:
        return job, None
    held = await claim(store)
    if state is JobState.COMPLETED:
        await store.finish(held, state, result={})
    elif state is JobState.FAILED:
        await store.finish(held, state, error={"type": "X"})
    elif state is JobState.CANCELLED:
        await store.finish(held, state)
    elif state is JobState.PAUSED:
        await store.pause(held, Checkpoint(number=2, name="reduce", state='{"findings": []}'))
    return job, held


@pytest.mark.parametrize("state", JobState)
async def test_cancel_from_every_state(store: JobStore, state: JobState) -> None:
    job, held = await _bring_to(store, state)
    after = await store.request_cancel(job.id, OWNER)
    assert after is not None
    assert after.state == (JobState.CANCELLED if state in (JobState.QUEUED, JobState.PAUSED) else state)
    assert after.cancel_requested == (state is JobState.RUNNING)
    if state is JobState.RUNNING:
        assert held is not None
        assert await store.beat([held]) == {job.id: True}


@pytest.mark.parametrize("state", JobState)
async def test_retry_from_every_state(store: JobStore, state: JobState) -> None:
    job, _ = await _bring_to(store, state)
    if state in (JobState.FAILED, JobState.CANCELLED):
        again = await store.retry(job.id, OWNER)
        assert again is not None
        assert (again.state, again.error, again.finished_unix_s) == (JobState.QUEUED, None, None)
        assert not again.cancel_requested
        assert (await claim(store)).job.attempt == 1, "attempts are counted anew"
        assert (await kinds(store, job.id))[-2:] == ["job.queued", "job.started"]
    else:
        with pytest.raises(WrongState, match=state.value):
            await store.retry(job.id, OWNER)
        assert await state_of(store, job.id) is state


@pytest.mark.parametrize("state", JobState)
async def test_resume_from_every_state(store: JobStore, state: JobState) -> None:
    job, _ = await _bring_to(store, state)
    if state is JobState.PAUSED:
        again = await store.resume(job.id, OWNER, '{"findings": [1]}', "reduce")
        assert again is not None
        assert (again.state, again.request.pause_before, again.request.looked_at) == (JobState.QUEUED, "reduce", 2)
        assert again.request.edits == (
            StepEdit(step=2, before="reduce", was='{"findings": []}', state='{"findings": [1]}'),
        )
        assert (await claim(store)).job.attempt == 1, "attempts are counted anew"
    else:
        with pytest.raises(WrongState, match="only a paused job"):
            await store.resume(job.id, OWNER, None, "")
        assert await state_of(store, job.id) is state


async def test_a_state_that_is_sent_back_as_it_was_is_no_edit(store: JobStore) -> None:
    job, _ = await _bring_to(store, JobState.PAUSED)
    again = await store.resume(job.id, OWNER, '{"findings":[]}', "")
    assert again is not None
    assert (again.request.edits, again.request.looked_at) == ((), 2)


async def test_a_job_that_was_to_be_cancelled_is_not_paused(store: JobStore) -> None:
    job, held = await _bring_to(store, JobState.RUNNING)
    assert held is not None
    await store.request_cancel(job.id, OWNER)
    await store.pause(held, Checkpoint(number=1, name="reduce", state="{}"))
    assert await state_of(store, job.id) is JobState.CANCELLED


@pytest.mark.parametrize("state", JobState)
async def test_delete_from_every_state(store: JobStore, state: JobState) -> None:
    job, _ = await _bring_to(store, state)
    if state in TERMINAL:
        assert await store.delete(job.id, OWNER)
        assert await store.find(job.id, OWNER) is None
        assert await store.events(job.id) == []
        assert not await store.delete(job.id, OWNER)
    else:
        with pytest.raises(WrongState, match="cancel it"):
            await store.delete(job.id, OWNER)


@pytest.mark.parametrize("state", JobState)
async def test_only_what_waits_is_claimed(store: JobStore, state: JobState) -> None:
    await _bring_to(store, state)
    taken = await store.claim("r2", Lane.LONG, LeaseWatch())
    assert (taken is not None) == (state is JobState.QUEUED)
    assert JobState.RUNNING in NEXT[JobState.QUEUED]


async def test_a_released_job_waits_again_and_keeps_its_history(store: JobStore) -> None:
    job, held = await _bring_to(store, JobState.RUNNING)
    assert held is not None
    await store.append(held, [NewEvent(kind="plan", data={}, key="plan")])
    await store.release(held)
    assert await state_of(store, job.id) is JobState.QUEUED
    second = await claim(store, "r2")
    assert (second.job.attempt, second.fence) == (1, 2), "giving it back was no failure"
    await store.release(second, counted=True)
    third = await claim(store, "r2")
    assert (third.job.attempt, third.fence) == (2, 3)
    await store.append(third, [NewEvent(kind="plan", data={}, key="plan")])
    assert await kinds(store, job.id) == ["job.queued", "job.started", "plan", "job.started", "job.started"]


async def test_a_job_that_was_to_be_cancelled_is_not_given_back(store: JobStore) -> None:
    job, held = await _bring_to(store, JobState.RUNNING)
    assert held is not None
    await store.request_cancel(job.id, OWNER)
    await store.release(held)
    assert await state_of(store, job.id) is JobState.CANCELLED
    assert (await kinds(store, job.id))[-1] == "job.cancelled"


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (JobState.COMPLETED, {}),
        (JobState.COMPLETED, {"result": {}, "error": {}}),
        (JobState.FAILED, {}),
        (JobState.CANCELLED, {"result": {}}),
        (JobState.RUNNING, {}),
    ],
)
async def test_an_end_that_does_not_fit_its_state_is_a_fault_of_ours(
    store: JobStore, state: JobState, fields: dict[str, dict[str, str]]
) -> None:
    job, held = await _bring_to(store, JobState.RUNNING)
    assert held is not None
    with pytest.raises(AssertionError):
        await store.finish(held, state, **fields)
    assert await state_of(store, job.id) is JobState.RUNNING


# --- the same request again ------------------------------------------------------------------------------------------


async def test_twenty_submits_with_one_idempotency_key_make_one_job(store: JobStore, other: Database) -> None:
    stores = (store, JobStore(other, now=store._now))
    new = new_job(idempotency_key="k", body_sha256="b")
    answers = await asyncio.gather(*(stores[n % 2].submit(new) for n in range(20)))
    assert len({job.id for job, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    assert len(await store.list_jobs(OWNER)) == 1


async def test_an_idempotency_key_with_another_body_is_refused(store: JobStore) -> None:
    first = await submit(store, idempotency_key="k", body_sha256="b")
    with pytest.raises(IdempotencyMismatch):
        await submit(store, idempotency_key="k", body_sha256="c")
    stranger = await submit(store, idempotency_key="k", body_sha256="c", owner="stranger")
    assert stranger.id != first.id
    assert len(await store.list_jobs(OWNER)) == 1


async def test_twenty_repetitions_without_a_key_attach_to_one_job(store: JobStore, other: Database) -> None:
    stores = (store, JobStore(other, now=store._now))
    new = new_job(body_sha256="b", attach_to_same_body=True)
    answers = await asyncio.gather(*(stores[n % 2].submit(new) for n in range(20)))
    assert sum(created for _, created in answers) == 1


async def test_only_a_repetition_attaches_and_only_for_a_while(store: JobStore, clock: Clock) -> None:
    first = await submit(store, body_sha256="b")
    assert (await submit(store, body_sha256="b")).id != first.id
    await store.request_cancel((await store.list_jobs(OWNER))[0].id, OWNER)
    repeated = dataclasses.replace(new_job(body_sha256="b"), attach_to_same_body=True)
    clock.pass_s(ATTACH_S - 1)
    assert (await store.submit(repeated)) == (first, False)
    assert (await store.submit(dataclasses.replace(repeated, key_id="other")))[1]
    assert (await store.submit(dataclasses.replace(repeated, body_sha256="c")))[1]
    clock.pass_s(2)
    assert (await store.submit(repeated))[1]


async def test_a_repetition_does_not_attach_to_what_failed(store: JobStore) -> None:
    repeated = new_job(body_sha256="b", attach_to_same_body=True)
    await store.submit(repeated)
    held = await claim(store)
    await store.finish(held, JobState.FAILED, error={"type": "CallTimedOut"})
    assert (await store.submit(repeated))[1]


async def test_a_queue_that_is_full_refuses(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "MOST_QUEUED", 2)
    new = new_job(idempotency_key="k", body_sha256="b")
    await store.submit(new)
    await submit(store)
    with pytest.raises(Overloaded):
        await submit(store)
    assert not (await store.submit(new))[1], "what is there already is found"


# --- numbers ---------------------------------------------------------------------------------------------------------


async def test_counts_and_totals(store: JobStore) -> None:
    label = (("stage", "map"), ("outcome", "ok"))
    for _ in range(2):
        await submit(store)
        await store.finish(await claim(store), JobState.COMPLETED, result={}, totals={("calls", label): 2.5})
    await submit(store, request=JobRequest(kind="chat"))
    assert await store.counts() == {("completed", "mapreduce"): 2, ("queued", "chat"): 1}
    assert await store.totals() == {("calls", tuple(sorted(label))): 5.0}


async def test_an_old_row_without_values_for_new_columns_is_read(store: JobStore, database: Database) -> None:
    job = await submit(store)
    async with database.write() as connection:
        await connection.execute(update(jobs).where(jobs.c.id == job.id).values(request="{}"))
    found = await store.find(job.id, OWNER)
    assert found is not None
    assert found.request == JobRequest()
