"""The queue: owners take turns, nobody fills it for the others, and what a new job would wait for is known."""

from __future__ import annotations

import pytest

from pipeline.errors import Overloaded
from serving.jobs import store as job_store
from serving.jobs.job import Job, JobState, Lane, QueueAhead
from serving.jobs.store import JobStore, LeaseWatch
from tests.integration.storage.factories import claim, submit


async def submit_for(store: JobStore, owners: str, **fields: object) -> list[Job]:
    """One job for each letter, owned by it."""
    return [await submit(store, owner=owner, **fields) for owner in owners]


async def run_all(store: JobStore, *, lane: Lane = Lane.LONG) -> str:
    """Run the queue dry, one job at a time; whose they were."""
    owners = ""
    while taken := await store.claim("r1", lane, LeaseWatch()):
        owners += taken.job.owner
        await store.finish(taken, JobState.COMPLETED, result={})
    return owners


async def test_owners_take_turns_whoever_came_first(store: JobStore) -> None:
    await submit_for(store, "aaaaaa")
    await submit_for(store, "bb")
    await submit_for(store, "c")
    assert await run_all(store) == "abcabaaaa"


async def test_an_owner_who_comes_late_begins_where_the_others_are_and_catches_nothing_up(store: JobStore) -> None:
    await submit_for(store, "aaaaaaaa")
    for _ in range(4):
        await store.finish(await claim(store), JobState.COMPLETED, result={})
    await submit_for(store, "bbb")
    assert await run_all(store) == "abababa"


async def test_an_owner_without_a_place_goes_before_one_who_has_some(store: JobStore) -> None:
    await submit_for(store, "aaaa")
    first, _ = await claim(store), await claim(store)
    await submit_for(store, "b")
    assert (await claim(store)).job.owner == "b"
    await submit_for(store, "b")
    assert (await claim(store)).job.owner == "b", "one place against two"
    await store.finish(first, JobState.COMPLETED, result={})
    await submit_for(store, "b")
    assert (await claim(store)).job.owner == "a"


async def test_places_and_turns_of_one_lane_do_not_count_in_another(store: JobStore) -> None:
    await submit_for(store, "aaaa", lane=Lane.SHORT)
    for _ in range(2):
        assert await store.claim("r1", Lane.SHORT, LeaseWatch())
    await submit_for(store, "ab", lane=Lane.LONG)
    assert await run_all(store) == "ab"


async def test_a_job_that_is_tried_again_takes_a_new_turn_and_one_given_back_keeps_its_own(store: JobStore) -> None:
    await submit_for(store, "aaa")
    failed = await claim(store)
    await store.finish(failed, JobState.FAILED, error={"type": "CallTimedOut"})
    await submit_for(store, "bb")
    given_back = await claim(store)
    await store.release(given_back)
    await store.retry(failed.job.id, "a")
    again = await claim(store)
    assert again.job.id == given_back.job.id
    await store.finish(again, JobState.COMPLETED, result={})
    assert await run_all(store) == "baba"


async def test_nobody_fills_the_queue_for_the_others(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "MAX_QUEUED_PER_OWNER", 2)
    first, _ = await submit_for(store, "aa")
    with pytest.raises(Overloaded, match=r"2 of your jobs are waiting.*submit this one when some of them have started"):
        await submit_for(store, "a")
    await submit_for(store, "b")
    await store.request_cancel(first.id, "a")
    await submit_for(store, "a")
    with pytest.raises(Overloaded):
        await store.retry(first.id, "a")
    assert {(await claim(store)).job.owner for _ in range(2)} == {"a", "b"}
    await store.retry(first.id, "a")


async def test_what_a_new_job_would_wait_for_is_what_has_its_turn_before(store: JobStore) -> None:
    assert await store.queue_ahead("a", Lane.LONG) == QueueAhead(jobs=0, running=0, tokens=0)
    await submit_for(store, "aaaa", work_tokens=100)
    held = await claim(store)
    await store.append(held, [], progress={"usage": {"map": {"prompt_tokens": 40}, "gate": {"prompt_tokens": 20}}})
    assert await store.queue_ahead("a", Lane.LONG) == QueueAhead(jobs=3, running=1, tokens=340)
    assert await store.queue_ahead("b", Lane.LONG) == QueueAhead(jobs=1, running=1, tokens=140)
    assert await store.queue_ahead("b", Lane.SHORT) == QueueAhead(jobs=0, running=0, tokens=0)
    await store.append(held, [], progress={"usage": {"map": {"prompt_tokens": 400}}})
    assert (await store.queue_ahead("b", Lane.LONG)).tokens == 100, "it reads more than was thought"


async def test_a_dead_runners_jobs_are_free_at_once_and_its_attempt_counts(store: JobStore) -> None:
    jobs = await submit_for(store, "aab")
    dead = [await claim(store, "dead"), await claim(store, "dead")]
    other = await claim(store, "alive")
    await store.request_cancel(dead[1].job.id, dead[1].job.owner)
    assert await store.bury_runner("dead") == 2
    assert await store.bury_runner("dead") == 0
    states = {job_id: state for job_id, (_, state) in (await store.heads([job.id for job in jobs])).items()}
    assert states == {
        dead[0].job.id: JobState.QUEUED,
        dead[1].job.id: JobState.CANCELLED,
        other.job.id: JobState.RUNNING,
    }
    taken = await claim(store)
    assert (taken.job.id, taken.job.attempt, taken.fence) == (dead[0].job.id, 2, 2)
