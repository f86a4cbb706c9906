"""What a person does with a job that rests: edit, fork, take up here; and what becomes of jobs of the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import WrongState
from pipeline.run.checkpoints import Checkpoint
from serving.jobs.events import step_record
from serving.jobs.job import Claim, DocumentRef, Job, JobRequest, JobState, Lane, NewEvent
from serving.jobs.steps import read_checkpoints
from serving.jobs.store import LEASE_S, JobStore, LeaseWatch
from serving.storage.database import Database
from tests.integration.storage.factories import OWNER, Clock, claim, kinds, state_of, submit

STEPS = [Checkpoint(number=n, name="look", state=f'{{"n": {n}}}') for n in (1, 2, 3)]


async def completed(store: JobStore, **request: object) -> Job:
    """A job that came to three steps."""
    job = await submit(store, request=JobRequest(question="Q?", strategy="refine", **request))  # type: ignore[arg-type]
    held = await claim(store)
    await store.append(
        held, [NewEvent(kind="step", data=step_record(step), key=f"step:{step.state}") for step in STEPS]
    )
    await store.finish(held, JobState.COMPLETED, result={"answer": "x"})
    return job


async def found(store: JobStore, job_id: str) -> Job:
    job = await store.find(job_id, OWNER)
    assert job is not None
    return job


async def checkpoints(store: JobStore, job_id: str) -> list[Checkpoint]:
    return read_checkpoints(await found(store, job_id), await store.steps(job_id))


async def take_up(store: JobStore, job_id: str, **options: object) -> Claim:
    taken = await store.take_up(job_id, "here", **options)  # type: ignore[arg-type]
    assert taken is not None
    return taken


async def test_an_edit_pauses_an_ended_job_and_ends_the_steps_after_it(store: JobStore) -> None:
    job = await completed(store)
    assert [step.number for step in await checkpoints(store, job.id)] == [1, 2, 3]
    edited = await store.edit(job.id, replace(STEPS[1], edited='{"n": 9}'))
    assert edited is not None
    assert (edited.state, edited.result, edited.finished_unix_s) == (JobState.PAUSED, None, None)
    assert [(step.number, step.edited) for step in await checkpoints(store, job.id)] == [(1, None), (2, '{"n": 9}')]
    held = await take_up(store, job.id, max_steps=7)
    assert (held.job.request.looked_at, held.job.request.max_steps, held.job.lane) == (2, 7, Lane.LOCAL)
    assert [edit.state for edit in held.job.request.edits] == ['{"n": 9}']


async def test_an_edit_can_be_taken_back_and_ends_edits_of_later_steps(store: JobStore) -> None:
    job = await completed(store)
    await store.edit(job.id, replace(STEPS[1], edited='{"n": 9}'))
    await store.edit(job.id, replace(STEPS[0], edited='{"n": 8}'))
    assert [edit.step for edit in (await found(store, job.id)).request.edits] == [1]
    await store.edit(job.id, STEPS[0])
    assert (await found(store, job.id)).request.edits == ()


async def test_a_job_that_waits_or_runs_is_not_edited(store: JobStore) -> None:
    job = await submit(store)
    with pytest.raises(WrongState, match="queued; wait for its end"):
        await store.edit(job.id, STEPS[0])
    await claim(store)
    with pytest.raises(WrongState, match="running; wait for its end"):
        await store.edit(job.id, STEPS[0])


async def test_the_api_resumes_an_edited_job_from_the_edit(store: JobStore) -> None:
    job = await completed(store)
    await store.edit(job.id, replace(STEPS[0], edited='{"n": 9}'))
    resumed = await store.resume(job.id, OWNER, None, "")
    assert resumed is not None
    assert [edit.state for edit in resumed.request.edits] == ['{"n": 9}']
    assert resumed.state is JobState.QUEUED


async def test_a_fork_has_the_steps_up_to_the_edit_and_its_parent_stays(store: JobStore, database: Database) -> None:
    document = DocumentRef(text_sha256="a" * 64, name="a.txt")
    parent = await completed(store, documents=(document,))
    before = await checkpoints(store, parent.id)
    fork = await store.fork(parent.id, replace(STEPS[1], edited='{"n": 9}'), before)
    assert fork is not None
    assert (fork.state, fork.owner, fork.request.origin) == (JobState.PAUSED, OWNER, parent.id)
    assert await kinds(store, fork.id) == ["job.forked", "step", "job.paused"]
    again = await store.fork(fork.id, replace(STEPS[1], edited='{"n": 10}'), await checkpoints(store, fork.id))
    assert again is not None
    steps = await checkpoints(store, again.id)
    assert [(at.number, at.edited, at.origin) for at in steps] == [(1, None, parent.id), (2, '{"n": 10}', fork.id)]
    assert (await found(store, parent.id)).result == {"answer": "x"}
    assert await checkpoints(store, parent.id) == before
    for job in (parent, again):
        if job is again:
            await store.request_cancel(job.id, OWNER)
        assert await store.delete(job.id, OWNER)
    assert (await found(store, fork.id)).request.documents == (document,)


async def test_no_runner_takes_a_job_of_the_command_line(store: JobStore, clock: Clock) -> None:
    job = await submit(store, lane=Lane.LOCAL)
    watch = LeaseWatch(clock.monotonic_s)
    held = await take_up(store, job.id)
    for _ in range(int(LEASE_S) + 2):
        for lane in (Lane.LONG, Lane.SHORT):
            assert await store.claim("gateway", lane, watch) is None
        clock.pass_s(1.0)
    assert (await store.beat([held])).keys() == {job.id}


async def test_a_job_whose_command_died_is_taken_over_by_name_or_cancelled(store: JobStore, clock: Clock) -> None:
    jobs = [await submit(store, lane=Lane.LOCAL) for _ in range(3)]
    first, second, third = [await take_up(store, job.id) for job in jobs]
    watches = [LeaseWatch(clock.monotonic_s) for _ in range(3)]
    for _ in range(int(LEASE_S)):
        assert await store.take_over(first.job.id, "other", watches[0]) is None
        assert await store.take_over(third.job.id, "other", watches[2]) is None
        assert await store.end_abandoned(watches[1]) == 0
        await store.beat([third])
        clock.pass_s(1.0)
    taken = await store.take_over(first.job.id, "other", watches[0])
    assert taken is not None
    assert taken.fence == first.fence + 1
    assert await store.take_over(third.job.id, "other", watches[2]) is None, "its command lives"
    assert await store.end_abandoned(watches[1]) == 1
    assert await state_of(store, second.job.id) is JobState.CANCELLED
    assert await state_of(store, third.job.id) is JobState.RUNNING


async def test_what_a_command_left_goes_on_in_a_lane_that_runners_serve(store: JobStore) -> None:
    job = await submit(store, lane=Lane.LOCAL)
    held = await take_up(store, job.id)
    await store.finish(held, JobState.CANCELLED)
    retried = await store.retry(job.id, OWNER)
    assert retried is not None
    assert retried.lane is Lane.LONG
    assert (await claim(store)).job.id == job.id


async def test_a_completed_or_running_job_is_not_taken_up(store: JobStore) -> None:
    job = await completed(store)
    with pytest.raises(WrongState, match="nothing to resume"):
        await store.take_up(job.id, "here")
    running = await submit(store, lane=Lane.LOCAL)
    await take_up(store, running.id)
    with pytest.raises(WrongState, match="running"):
        await store.take_up(running.id, "here")
    assert await store.take_up("0" * 26, "here") is None


async def test_jobs_of_all_owners_are_found_by_the_beginning_of_their_ids(store: JobStore, clock: Clock) -> None:
    first = await submit(store)
    clock.pass_s(60)
    second = await submit(store, owner="another")
    assert [job.id for job in await store.list_all(limit=9)] == [second.id, first.id]
    assert [job.id for job in await store.find_any(second.id[:-2])] == [second.id]
    assert len(await store.find_any("0")) == 2
    assert await store.find_any("%") == []
