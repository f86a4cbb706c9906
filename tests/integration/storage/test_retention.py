"""What is kept, for how long and how much; deleting takes along what belongs to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipeline.dispatch.journal import Journal
from pipeline.llm.model import Completion, Usage
from serving.jobs.job import JobRequest, JobState
from serving.jobs.retention import DAY_S, DeletedJobs, Pruned, prune_journal, prune_store
from serving.jobs.store import JobStore
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from tests.integration.storage.factories import OWNER, Clock, claim, submit


async def ended(store: JobStore, **fields: object) -> str:
    """A job that has completed."""
    await submit(store, **fields)
    held = await claim(store)
    await store.finish(held, JobState.COMPLETED, result={})
    return held.job.id


async def test_ended_jobs_go_when_they_are_old_and_others_stay(store: JobStore, clock: Clock) -> None:
    old = await ended(store)
    waiting = await submit(store)
    running = await claim(store)
    assert running.job.id == waiting.id
    clock.pass_s(10 * DAY_S)
    fresh = await ended(store)
    assert await store.prune(before_unix_s=clock.wall_s - 5 * DAY_S, max_jobs=0) == 1
    assert {job.id for job in await store.list_jobs(OWNER)} == {waiting.id, fresh}
    assert await store.events(old) == []
    assert [job_id for job_id, _ in await store.deleted_jobs(since_unix_s=0.0)] == [old]


async def test_beyond_a_number_the_oldest_jobs_go(store: JobStore, clock: Clock) -> None:
    ids = []
    for _ in range(5):
        ids.append(await ended(store))
        clock.pass_s(1)
    assert await store.prune(before_unix_s=0.0, max_jobs=2) == 3
    assert {job.id for job in await store.list_jobs(OWNER)} == set(ids[3:])
    assert await store.prune(before_unix_s=0.0, max_jobs=2) == 0


async def stream(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.fixture
def files(database: Database, tmp_path: Path, clock: Clock) -> FileStore:
    return FileStore(database, tmp_path / "files", max_bytes=1 << 20, now=clock.unix_s)


async def upload(files: FileStore, text: str) -> str:
    return (await files.add(OWNER, "a.txt", "user_data", "text/plain", stream(text.encode()))).id


async def test_files_go_by_age_and_then_by_size(files: FileStore, clock: Clock) -> None:
    old = await upload(files, "old " * 100)
    clock.pass_s(10 * DAY_S)
    middle, fresh = await upload(files, "middle " * 100), await upload(files, "fresh " * 100)
    assert await files.prune(before_unix_s=clock.wall_s - DAY_S, max_bytes=2**40) == 1
    assert await files.find(old, OWNER) is None
    assert await files.prune(before_unix_s=0.0, max_bytes=650) == 1
    assert await files.find(middle, OWNER) is None
    assert await files.find(fresh, OWNER) is not None


def kept(journal: Journal, key: str, job_id: str) -> None:
    journal.keep(key, Completion(text=key, finish_reason="stop", usage=Usage(calls=1)), job_id)


async def test_a_deleted_job_takes_its_completions_along_and_leaves_those_of_others(
    store: JobStore, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    deleted = DeletedJobs(store, journal)
    mine, other = await ended(store), await ended(store)
    for key in ("mine", "shared"):
        kept(journal, key, mine)
    assert journal.find("shared", other)
    assert await deleted.forget() == 0
    await store.delete(mine, OWNER)
    assert await deleted.forget() == 1
    assert await deleted.forget() == 0
    assert journal.find("mine") is None
    assert journal.find("shared") is not None
    await store.delete(other, OWNER)
    assert await DeletedJobs(store, journal).forget() == 1, "a runner that starts hears of all of them"
    assert journal.find("shared") is None


async def test_the_defaults_remove_nothing_that_is_new(store: JobStore, files: FileStore, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, cache_dir=tmp_path)
    store, files = JobStore(store._database), FileStore(store._database, tmp_path / "files", max_bytes=1 << 20)
    job_id = await ended(store, request=JobRequest(question="Q"))
    await upload(files, "text")
    journal = Journal(tmp_path / "j.sqlite")
    kept(journal, "key", job_id)
    assert await prune_store(store, files, settings) == Pruned()
    assert await prune_journal(journal, settings) == Pruned()
    assert journal.find("key") is not None
    strict = settings.model_copy(update={"keep_jobs_days": 1e-9, "keep_files_days": 1e-9, "keep_calls_days": 1e-9})
    assert await prune_store(store, files, strict) == Pruned(jobs=1, files=1)
    assert await prune_journal(journal, strict) == Pruned(calls=1)
