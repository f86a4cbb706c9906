"""Leases: one runner holds a job, whoever dies, sleeps or sets the clock."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pipeline.errors import LeaseLost
from serving.jobs.job import Claim, JobState, Lane, NewEvent, RunnerStatus
from serving.jobs.lease_watch import Lease
from serving.jobs.store import LEASE_S, JobStore, LeaseWatch
from serving.storage.database import Database
from tests.integration.storage.factories import OWNER, Clock, claim, kinds, state_of, submit

ROOT = Path(__file__).parents[3]


async def watch_for(store: JobStore, watch: LeaseWatch, clock: Clock, seconds: float) -> Claim | None:
    """Look every second, as a runner does, until something can be claimed."""
    for _ in range(int(seconds) + 1):
        if taken := await store.claim("r2", Lane.LONG, watch):
            return taken
        clock.pass_s(1)
    return None


async def test_a_job_whose_holder_beats_is_never_taken(store: JobStore, clock: Clock) -> None:
    await submit(store)
    held = await claim(store)
    watch = LeaseWatch(clock.monotonic_s)
    for _ in range(20):
        assert await watch_for(store, watch, clock, 2) is None
        assert await store.beat([held]) == {held.job.id: False}


async def test_a_job_whose_holder_stopped_is_taken_after_a_lease(store: JobStore, clock: Clock) -> None:
    job = await submit(store)
    await claim(store)
    watch = LeaseWatch(clock.monotonic_s)
    assert await watch_for(store, watch, clock, LEASE_S - 1) is None
    taken = await watch_for(store, watch, clock, 1)
    assert taken is not None
    assert (taken.job.id, taken.fence, taken.job.attempt) == (job.id, 2, 2)


async def test_an_overtaken_holder_can_write_nothing(store: JobStore, clock: Clock) -> None:
    job = await submit(store, reserve_tokens=5)
    late = await claim(store)
    taken = await watch_for(store, LeaseWatch(clock.monotonic_s), clock, LEASE_S)
    assert taken is not None
    before = await store.find(job.id, OWNER)
    assert await store.beat([late, taken]) == {job.id: False}
    for write in (
        store.append(late, [NewEvent(kind="plan", data={})], plan={"a": 1}),
        store.finish(late, JobState.COMPLETED, result={"a": 1}, totals={("x", ()): 1.0}),
        store.release(late),
    ):
        with pytest.raises(LeaseLost):
            await write
    assert await store.find(job.id, OWNER) == before
    assert await store.totals() == {}
    await store.finish(taken, JobState.COMPLETED, result={})
    with pytest.raises(LeaseLost):
        await store.append(taken, [NewEvent(kind="late", data={})])
    assert (await kinds(store, job.id))[-1] == "job.completed"


async def test_looking_at_leases_tells_what_a_beat_does_and_renews_nothing(store: JobStore, clock: Clock) -> None:
    await submit(store)
    cancelled = await submit(store)
    late, held = await claim(store), await claim(store)
    watch = LeaseWatch(clock.monotonic_s)
    await store.request_cancel(cancelled.id, OWNER)
    for _ in range(int(LEASE_S) // 2):
        assert await store.look_at_leases([late, held]) == {late.job.id: False, cancelled.id: True}
        await store.beat([held])
        assert await watch_for(store, watch, clock, 1) is None
    taken = await watch_for(store, watch, clock, 2)
    assert taken is not None
    assert taken.job.id == late.job.id, "it was looked at all the time, and not renewed"
    assert await store.look_at_leases([late, held]) == {cancelled.id: True}
    await store.finish(held, JobState.CANCELLED)
    assert await store.look_at_leases([held, taken]) == {late.job.id: False}
    assert await store.look_at_leases([]) == {}


async def test_a_deleted_jobs_holder_is_told(store: JobStore) -> None:
    job = await submit(store)
    held = await claim(store)
    await store.finish(held, JobState.CANCELLED)
    await store.delete(job.id, OWNER)
    assert await store.beat([held]) == {}
    with pytest.raises(LeaseLost):
        await store.append(held, [])


async def test_a_job_that_was_to_be_cancelled_when_its_holder_died_is_handed_on_as_such(
    store: JobStore, clock: Clock
) -> None:
    job = await submit(store)
    await claim(store)
    await store.request_cancel(job.id, OWNER)
    taken = await watch_for(store, LeaseWatch(clock.monotonic_s), clock, LEASE_S)
    assert taken is not None
    assert taken.job.cancel_requested
    assert await store.beat([taken]) == {job.id: True}


@pytest.mark.parametrize("jump_s", [-1e9, 1e9])
async def test_setting_the_clock_takes_no_job_from_its_holder(store: JobStore, clock: Clock, jump_s: float) -> None:
    await submit(store)
    held = await claim(store)
    watch = LeaseWatch(clock.monotonic_s)
    assert await watch_for(store, watch, clock, 2) is None
    clock.wall_s += jump_s
    assert await watch_for(store, watch, clock, LEASE_S - 4) is None
    await store.beat([held])
    await store.append(held, [NewEvent(kind="plan", data={})])
    assert await watch_for(store, watch, clock, LEASE_S - 1) is None


async def test_jobs_are_listed_and_retried_after_the_clock_was_set_back(store: JobStore, clock: Clock) -> None:
    first = await submit(store)
    clock.wall_s -= 3600
    second = await submit(store)
    assert {job.id for job in await store.list_jobs(OWNER)} == {first.id, second.id}
    assert {(await claim(store)).job.id, (await claim(store)).job.id} == {first.id, second.id}


async def test_a_watcher_that_slept_himself_does_not_take_others_for_dead(clock: Clock) -> None:
    watch = LeaseWatch(clock.monotonic_s)
    lease = Lease("a", 1, 1)
    assert watch.look([lease]) == []
    clock.pass_s(3600)
    assert watch.look([lease]) == []
    for _ in range(8):
        clock.pass_s(1)
        stood_still = watch.look([lease])
    assert stood_still == [lease]


def test_a_lease_that_moved_or_went_is_watched_anew(clock: Clock) -> None:
    watch = LeaseWatch(clock.monotonic_s)
    seen = [Lease("a", 1, 1), Lease("b", 1, 1)]
    for _ in range(9):
        assert watch.look(seen) == []
        clock.pass_s(1)
    assert watch.look([Lease("a", 1, 2)]) == []
    clock.pass_s(2)
    assert watch.look(seen) == [], "b was gone in between"


async def test_many_runners_never_hold_one_job(store: JobStore, other: Database) -> None:
    ids = {(await submit(store)).id for _ in range(12)}
    stores = (store, JobStore(other))
    watches = [LeaseWatch() for _ in range(6)]

    async def take_all(number: int) -> list[str]:
        taken = []
        while claimed := await stores[number % 2].claim(f"r{number}", Lane.LONG, watches[number]):
            taken.append(claimed.job.id)
        return taken

    lists = await asyncio.gather(*(take_all(number) for number in range(6)))
    everything = [job_id for taken in lists for job_id in taken]
    assert sorted(everything) == sorted(ids)


async def test_two_watchers_of_one_dead_holder_do_not_both_get_its_job(
    store: JobStore, other: Database, clock: Clock
) -> None:
    await submit(store)
    await claim(store)
    stores = (store, JobStore(other))
    watches = (LeaseWatch(clock.monotonic_s), LeaseWatch(clock.monotonic_s))
    for _ in range(int(LEASE_S)):
        for one, watch in zip(stores, watches, strict=True):
            assert await one.claim("r", Lane.LONG, watch) is None
        clock.pass_s(1)
    taken = await asyncio.gather(*(s.claim("r", Lane.LONG, w) for s, w in zip(stores, watches, strict=True)))
    assert sum(claimed is not None for claimed in taken) == 1


_RUNNER = """
import asyncio, json, sys, time
from serving.storage.database import Database
from serving.jobs.job import JobState, Lane
from serving.jobs.store import JobStore, LeaseWatch

async def main():
    url, name, dies = sys.argv[1], sys.argv[2], sys.argv[3] == "dies"
    database = Database.open(url, lock_s=20)
    store, watch, done = JobStore(database), LeaseWatch(lease_s=0.5), []
    while len(done) < 30:
        heads = await store.counts()
        if sum(n for (state, _), n in heads.items() if state != "completed") == 0:
            break
        claim = await store.claim(name, Lane.LONG, watch)
        if claim is None:
            await asyncio.sleep(0.05)
            continue
        if dies:
            print(json.dumps([]))
            return  # holding it, without a word
        done.append([claim.job.id, claim.fence])
        await store.finish(claim, JobState.COMPLETED, result={"by": name})
    await database.close()
    print(json.dumps(done))

asyncio.run(main())
"""


async def test_processes_that_claim_at_once_run_each_job_once_and_the_dead_ones_too(store: JobStore, url: str) -> None:
    ids = {(await submit(store)).id for _ in range(15)}

    def start(name: str, kind: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_RUNNER), url, name, kind], cwd=ROOT, stdout=subprocess.PIPE
        )

    children = [start("a", "lives"), start("b", "dies"), start("c", "lives")]
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, timeout=60) for child in children))
    done = [tuple(entry) for out, _ in outputs for entry in json.loads(out)]
    assert sorted(job_id for job_id, _ in done) == sorted(ids), "each once"
    for job_id in ids:
        assert await state_of(store, job_id) is JobState.COMPLETED
        assert (await kinds(store, job_id)).count("job.completed") == 1


async def test_runners_tell_how_they_are_and_are_forgotten(store: JobStore, clock: Clock) -> None:
    status = RunnerStatus(
        id="r1",
        pid=7,
        beat=1,
        ready=True,
        message="reads",
        model="m",
        model_fingerprint="f",
        context_tokens=100,
        replicas=({"id": "a"},),
        since_unix_s=1e9,
    )
    await store.report_runner(status)
    await store.report_runner(status)
    assert await store.runners() == [status]
    clock.pass_s(2 * 86_400)
    await store.report_runner(RunnerStatus(**{**_fields(status), "id": "r2"}))
    assert [runner.id for runner in await store.runners()] == ["r2"], "one that is long dead is not kept"
    await store.forget_runner("r2")
    assert await store.runners() == []


def _fields(status: RunnerStatus) -> dict[str, object]:
    return {name: getattr(status, name) for name in RunnerStatus.__dataclass_fields__}
