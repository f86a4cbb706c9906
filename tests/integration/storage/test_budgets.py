"""Limits of a key: never oversold, settled with the real use, given back where nothing was used."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.errors import QuotaExceeded
from pipeline.run.checkpoints import Checkpoint
from serving.jobs.job import Claim, JobState
from serving.jobs.store import JobStore
from serving.storage.database import Database
from serving.storage.keys import ApiKey, KeyStore
from tests.integration.storage.factories import NOON_UNIX_S, OWNER, Clock, claim, new_job, submit

DAY_S = 86_400


@pytest.fixture
def keys(database: Database, clock: Clock, tmp_path) -> KeyStore:
    return KeyStore(database, tmp_path, now=clock.unix_s)


async def make_key(keys: KeyStore, **limits: int) -> ApiKey:
    key, _ = await keys.create(name="k", owner=OWNER, **limits)
    return key


async def submit_many(stores: list[JobStore], number: int, **fields: object) -> int:
    """How many were accepted."""

    async def one(store: JobStore) -> bool:
        try:
            await store.submit(new_job(**fields))
        except QuotaExceeded:
            return False
        return True

    return sum(await asyncio.gather(*(one(stores[n % len(stores)]) for n in range(number))))


async def test_fifty_at_once_never_oversell_ten_requests(
    store: JobStore, other: Database, keys: KeyStore, clock: Clock
) -> None:
    key = await make_key(keys, requests_per_minute=10)
    stores = [store, JobStore(other, now=clock.unix_s)]
    assert await submit_many(stores, 50, key_id=key.id) == 10
    assert len(await store.list_jobs(OWNER, limit=100)) == 10
    left = await keys.remaining(key)
    assert (left.requests_limit, left.requests, left.requests_reset_s) == (10, 0, 60)


async def test_fifty_at_once_never_oversell_the_tokens_of_ten(
    store: JobStore, other: Database, keys: KeyStore, clock: Clock
) -> None:
    key = await make_key(keys, tokens_per_day=1000)
    stores = [store, JobStore(other, now=clock.unix_s)]
    assert await submit_many(stores, 50, key_id=key.id, reserve_tokens=100) == 10
    assert (await keys.remaining(key)).tokens == 0


async def test_requests_come_back_evenly_and_the_wait_is_told(store: JobStore, keys: KeyStore, clock: Clock) -> None:
    key = await make_key(keys, requests_per_minute=6)
    assert await submit_many([store], 7, key_id=key.id) == 6
    with pytest.raises(QuotaExceeded) as refused:
        await submit(store, key_id=key.id)
    assert refused.value.retry_after_s == pytest.approx(10)
    clock.pass_s(10)
    await submit(store, key_id=key.id)
    with pytest.raises(QuotaExceeded):
        await submit(store, key_id=key.id)


@pytest.mark.parametrize("jump_s", [-1e8, 1e8])
async def test_setting_the_clock_neither_locks_a_key_nor_gives_more_than_a_bucket(
    store: JobStore, keys: KeyStore, clock: Clock, jump_s: float
) -> None:
    key = await make_key(keys, requests_per_minute=10)
    assert await submit_many([store], 12, key_id=key.id) == 10
    clock.wall_s += jump_s
    assert await submit_many([store], 12, key_id=key.id) <= 10
    clock.pass_s(60)
    assert await submit_many([store], 12, key_id=key.id) == 10


async def test_the_real_use_is_booked_at_the_end(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=1000)
    await submit(store, key_id=key.id, reserve_tokens=900)
    with pytest.raises(QuotaExceeded, match="100 of 1,000") as refused:
        await submit(store, key_id=key.id, reserve_tokens=101)
    assert refused.value.retry_after_s == DAY_S / 2
    usage = {"map": {"prompt_tokens": 200, "output_tokens": 30}, "reduce": {"prompt_tokens": 50, "output_tokens": 20}}
    await store.finish(await claim(store), JobState.COMPLETED, result={}, usage=usage)
    [day] = await keys.usage(key.id)
    assert (day.requests, day.prompt_tokens, day.output_tokens, day.reserved_tokens) == (1, 250, 50, 0)
    assert (await keys.remaining(key)).tokens == 700


async def test_more_than_was_reserved_counts_too(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=100)
    await submit(store, key_id=key.id, reserve_tokens=10)
    usage = {"map": {"prompt_tokens": 150, "output_tokens": 0}}
    await store.finish(await claim(store), JobState.FAILED, error={}, usage=usage)
    assert (await keys.remaining(key)).tokens == 0
    with pytest.raises(QuotaExceeded):
        await submit(store, key_id=key.id, reserve_tokens=0)


async def test_a_queued_job_that_is_cancelled_costs_no_tokens_and_its_retry_does(
    store: JobStore, keys: KeyStore
) -> None:
    key = await make_key(keys, tokens_per_day=100)
    job = await submit(store, key_id=key.id, reserve_tokens=100)
    await store.request_cancel(job.id, OWNER)
    assert (await keys.remaining(key)).tokens == 100
    await store.retry(job.id, OWNER)
    assert (await keys.remaining(key)).tokens == 0
    with pytest.raises(QuotaExceeded):
        await submit(store, key_id=key.id, reserve_tokens=1)


async def leave(store: JobStore, held: Claim, *, paused: bool) -> None:
    if paused:
        await store.pause(held, Checkpoint(number=1, name="reduce", state="{}"))
    else:
        await store.release(held)


@pytest.mark.parametrize("paused", [True, False])
async def test_what_a_waiting_job_used_before_is_paid_for_when_it_is_cancelled(
    store: JobStore, keys: KeyStore, *, paused: bool
) -> None:
    key = await make_key(keys, tokens_per_day=1000)
    job = await submit(store, key_id=key.id, reserve_tokens=900)
    held = await claim(store)
    usage = {"map": {"prompt_tokens": 200, "output_tokens": 30}}
    await store.append(held, [], progress={"usage": usage})
    await leave(store, held, paused=paused)
    assert (await keys.remaining(key)).tokens == 100, "it stays reserved while the job waits"
    cancelled = await store.request_cancel(job.id, OWNER)
    assert cancelled is not None
    assert cancelled.usage == usage
    assert (await keys.remaining(key)).tokens == 770


@pytest.mark.parametrize("paused", [True, False])
async def test_a_job_that_was_to_be_cancelled_when_it_was_left_has_paid_too(
    store: JobStore, keys: KeyStore, *, paused: bool
) -> None:
    key = await make_key(keys, tokens_per_day=1000)
    job = await submit(store, key_id=key.id, reserve_tokens=900)
    held = await claim(store)
    await store.append(held, [], progress={"usage": {"map": {"prompt_tokens": 200, "output_tokens": 30}}})
    await store.request_cancel(job.id, OWNER)
    await leave(store, held, paused=paused)
    assert (await keys.remaining(key)).tokens == 770


async def test_a_retry_beyond_the_budget_leaves_the_job_as_it_was(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=100)
    job = await submit(store, key_id=key.id, reserve_tokens=60)
    await store.request_cancel(job.id, OWNER)
    await submit(store, key_id=key.id, reserve_tokens=60)
    before = await store.find(job.id, OWNER)
    with pytest.raises(QuotaExceeded):
        await store.retry(job.id, OWNER)
    assert await store.find(job.id, OWNER) == before


async def test_a_released_job_stays_paid_for(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=100)
    await submit(store, key_id=key.id, reserve_tokens=60)
    await store.release(await claim(store))
    assert (await keys.remaining(key)).tokens == 40


async def test_the_same_request_again_is_not_paid_again(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=100, requests_per_minute=1)
    for _ in range(3):
        await submit(store, key_id=key.id, reserve_tokens=60, idempotency_key="k", body_sha256="b")
    assert (await keys.remaining(key)).tokens == 40


async def test_a_new_day_begins_at_midnight_utc(store: JobStore, keys: KeyStore, clock: Clock) -> None:
    key = await make_key(keys, tokens_per_day=100)
    await submit(store, key_id=key.id, reserve_tokens=100)
    held = await claim(store)
    clock.pass_s(DAY_S / 2 + 1)
    await submit(store, key_id=key.id, reserve_tokens=100)
    await store.finish(held, JobState.COMPLETED, result={}, usage={"map": {"prompt_tokens": 70}})
    today, yesterday = await keys.usage(key.id)
    assert (today.reserved_tokens, today.prompt_tokens) == (100, 0)
    assert (yesterday.reserved_tokens, yesterday.prompt_tokens) == (0, 70), "it counts for the day of acceptance"
    assert NOON_UNIX_S % DAY_S == DAY_S / 2


async def test_a_job_larger_than_the_budget_is_told_that_waiting_does_not_help(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys, tokens_per_day=100)
    with pytest.raises(QuotaExceeded, match="waiting does not help") as refused:
        await submit(store, key_id=key.id, reserve_tokens=101)
    assert refused.value.retry_after_s is None


async def test_without_limits_use_is_booked_all_the_same(store: JobStore, keys: KeyStore) -> None:
    key = await make_key(keys)
    await submit(store, key_id=key.id, reserve_tokens=10**12)
    left = await keys.remaining(key)
    assert (left.requests, left.tokens) == (None, None)
    assert (await keys.usage(key.id))[0].requests == 1
