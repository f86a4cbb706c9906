"""A runner of its own process on a real cluster: Ray dies under a job and comes back, and the job goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from serving.cluster import daemon
from serving.cluster.processes import processes
from serving.jobs.job import Job, JobRequest, JobState, Lane, NewJob
from serving.jobs.store import JobStore
from serving.models.profile import load_profile
from serving.session import cluster_folder
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import prepare_database
from tests.factories import fact_document
from tests.integration.conftest import scripted_placement
from tests.tiny_model import make_chat_model

ROOT = Path(__file__).parents[2]
OWNER = "team"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    make_chat_model(tmp_path / "model")
    yield made
    daemon.down(cluster_folder(made))


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    opened = Database.open(settings.database)
    await prepare_database(opened)
    yield opened
    await opened.close()


def start_cluster(settings: Settings, folder: Path) -> daemon.ClusterRecord:
    """Replicas of a scripted model in the place of the one that the runner would start."""
    profile = load_profile(folder / "model")
    served = daemon.Served(
        model_path=str(profile.path),
        model_fingerprint=profile.fingerprint,
        context_tokens=profile.context_tokens,
        dtype=profile.dtype.name,
    )
    placement = scripted_placement(folder, replicas=2)
    return daemon.up(placement, served, folder=cluster_folder(settings), report=lambda _: None)


def start_runner(settings: Settings) -> subprocess.Popen[bytes]:
    folders = {"LONGFOLD_STATE_DIR": str(settings.state_dir), "LONGFOLD_CACHE_DIR": str(settings.cache_dir)}
    return subprocess.Popen([sys.executable, "-m", "serving", "runner"], cwd=ROOT, env=os.environ | folders)


def calls_begun(folder: Path) -> Counter[str]:
    path = folder / "pipeline_calls"
    return Counter(path.read_text("ascii").split() if path.exists() else [])


async def submit(store: JobStore, files: FileStore) -> Job:
    document = await files.add_text(OWNER, fact_document({}, paragraphs=120).text, "harbour.txt")
    request = JobRequest(question="How still was the harbour?", strategy="mapreduce", documents=(document,))
    new = NewJob(owner=OWNER, key_id="", surface="job", request=request, lane=Lane.LONG)
    return (await store.submit(new))[0]


async def test_ray_restarted_under_a_job_costs_time_and_the_calls_in_flight(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    store, files = JobStore(database), FileStore(database, settings.files_dir, max_bytes=1 << 20)
    first = await asyncio.to_thread(start_cluster, settings, tmp_path)
    runner = start_runner(settings)
    job = await submit(store, files)
    async with asyncio.timeout(120):
        while calls_begun(tmp_path).total() < 20:
            assert runner.poll() is None
            await asyncio.sleep(0.05)
    for process in processes(first.mark):
        process.kill()
    polled = await store.find(job.id, OWNER)
    assert polled is not None
    assert polled.state is JobState.RUNNING, "polls are answered from the database"
    runner.terminate()  # unless Ray has ended it already, as it does with the driver of a cluster that is gone
    await asyncio.to_thread(runner.wait, 60)
    await asyncio.to_thread(start_cluster, settings, tmp_path)
    runner = start_runner(settings)
    try:
        async with asyncio.timeout(180):
            while (done := await store.find(job.id, OWNER)) is None or done.state is not JobState.COMPLETED:
                assert runner.poll() is None
                await asyncio.sleep(0.1)
    finally:
        runner.terminate()
        assert await asyncio.to_thread(runner.wait, 30) == 0
    begun = calls_begun(tmp_path)
    assert done.result is not None
    assert done.result["coverage"]["chunks_read"] == done.result["coverage"]["chunks"]
    assert begun.total() - len(begun) <= 64, "what was in flight, and a chunk whose text occurs twice"
    events = await store.events(job.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
