"""Whatever dies, the result is the one of a run that nothing disturbed, and no completed call is paid twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline.llm.scripted import ScriptedModel
from serving.jobs.job import EventRecord, Job, JobState
from serving.jobs.supervisor import STOP_S
from tests.api.conftest import is_running
from tests.api.rig import MAX_CALLS, OWNER, Rig, noted_calls, noting, reader, story, until

ROOT = Path(__file__).parents[2]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
async def spawn(rig: Rig) -> AsyncIterator[Spawn]:
    """Starts runners in processes of their own; ends what is left of them."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(**options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.api.rig", str(rig.folder), json.dumps(options)]
        started.append(subprocess.Popen(command, cwd=ROOT))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def essence(job: Job) -> str:
    """Everything of a result that is no duration."""
    assert job.result is not None, job.error
    result = {name: value for name, value in job.result.items() if "seconds" not in name}
    result["usage"] = {
        stage: {name: number for name, number in used.items() if name != "seconds"}
        for stage, used in job.result["usage"].items()
    }
    return json.dumps([result, job.usage], sort_keys=True)


def told(events: list[EventRecord]) -> Counter[str]:
    """What a history says, whoever told it and in which order."""
    return Counter(
        json.dumps([event.kind, {k: v for k, v in event.data.items() if k not in ("tokens", "reason")}], sort_keys=True)
        for event in events
        if event.kind not in ("job.started", "job.queued", "stage.started", "provisional")
    )


async def undisturbed(folder: Path, text: str) -> tuple[Job, list[EventRecord], int]:
    """The job, its history and its number of calls, of a run in this process."""
    folder.mkdir()
    rig = await Rig.open(folder)
    model = ScriptedModel(reader())
    running = asyncio.create_task(rig.runner(model).run())
    job = await rig.ended(await rig.submit(text))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    events = await rig.store.events(job.id)
    await rig.database.close()
    return job, events, len(model.calls)


async def test_a_runner_killed_at_any_points_costs_time_and_at_most_the_calls_in_flight(
    rig: Rig, spawn: Spawn, tmp_path: Path
) -> None:
    text = story(120, fact_at=90)
    golden, golden_events, unique = await undisturbed(tmp_path / "golden", text)
    draw = random.Random(20)
    job = await rig.submit(text)
    kills = 0
    while kills < 3:  # the fifth attempt would give the job up
        process = spawn(delay_s=0.05)
        aim = len(noted_calls(rig.folder)) + draw.randrange(1, unique // 3)
        await until(lambda aim=aim: len(noted_calls(rig.folder)) >= aim)  # type: ignore[misc]
        await asyncio.sleep(draw.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert (await rig.find(job)).state is JobState.RUNNING, "its lease has not run out yet"
    spawn(delay_s=0.0)
    done = await rig.ended(job)
    assert done.state is JobState.COMPLETED
    assert done.attempt == kills + 1
    assert essence(done) == essence(golden)
    assert len(noted_calls(rig.folder)) <= unique + kills * MAX_CALLS
    events = await rig.store.events(job.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert told(events) == told(golden_events)


async def freeze(process: subprocess.Popen[bytes], rig: Rig) -> None:
    """Stop a process between two transactions: one that sleeps within holds SQLite's lock, and nobody can go on."""

    def unlocked() -> bool:
        path = rig.folder / "longfold.sqlite"
        with (
            closing(sqlite3.connect(path, isolation_level=None, timeout=0.1)) as other,
            suppress(sqlite3.OperationalError),
        ):
            other.execute("BEGIN EXCLUSIVE")
            return True
        return False

    while True:
        process.send_signal(signal.SIGSTOP)
        if await asyncio.to_thread(unlocked):
            return
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.03)


async def test_a_runner_past_its_lease_is_refused_every_write_and_its_job_runs_once(
    rig: Rig, spawn: Spawn, tmp_path: Path
) -> None:
    text = story(120, fact_at=90)
    golden, _, unique = await undisturbed(tmp_path / "golden", text)
    job = await rig.submit(text)
    sleeper = spawn(delay_s=1.5)
    await until(lambda: len(noted_calls(rig.folder)) >= 2 * MAX_CALLS)
    await freeze(sleeper, rig)
    asleep = await rig.find(job)
    assert (asleep.state, asleep.attempt) == (JobState.RUNNING, 1)
    spawn(delay_s=0.3)
    await rig.reaches(job, lambda found: found.attempt == 2)
    asleep_calls = Counter(pid for _, pid in noted_calls(rig.folder))[sleeper.pid]
    sleeper.send_signal(signal.SIGCONT)
    done = await rig.ended(job)
    assert essence(done) == essence(golden)
    assert done.fence == 2
    await asyncio.sleep(0.5)
    events = await rig.store.events(job.id)
    assert [event.kind for event in events].count("job.completed") == 1
    assert events[-1].kind == "job.completed"
    assert sleeper.poll() is None, "it goes on with other jobs"
    per_runner = Counter(pid for _, pid in noted_calls(rig.folder))
    awake_calls = per_runner[sleeper.pid] - asleep_calls
    assert awake_calls <= 2 * MAX_CALLS, "what began before its first write was refused, and no more"
    assert per_runner.total() <= unique + MAX_CALLS + awake_calls


async def test_two_runners_on_one_database_run_every_job_once(rig: Rig, spawn: Spawn) -> None:
    # A lease as long as the real one: on a busy machine a runner may stand still for a second.
    # And calls that take their time: else one runner may be through with all jobs before the other looks.
    started = [spawn(lease_s=10.0, delay_s=0.3) for _ in range(2)]
    await until(lambda: all((rig.folder / f"runner-{process.pid}").exists() for process in started))
    jobs = [await rig.submit(story(8, fact_at=i)) for i in range(8)]
    for job in jobs:
        done = await rig.ended(job)
        assert (done.state, done.attempt, done.fence) == (JobState.COMPLETED, 1, 1)
    pids = {pid for _, pid in noted_calls(rig.folder)}
    assert len(pids) == 2
    per_call = Counter(key for key, _ in noted_calls(rig.folder))
    assert set(per_call.values()) == {1}


async def test_sigterm_gives_jobs_back_and_ends_with_zero(rig: Rig, spawn: Spawn) -> None:
    job = await rig.submit(story())
    runner = spawn(delay_s=5.0)
    await until(lambda: len(noted_calls(rig.folder)) >= 1)
    runner.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(runner.wait, 10) == 0
    given_back = await rig.find(job)
    assert (given_back.state, given_back.attempt) == (JobState.QUEUED, 0)


async def test_a_runner_ends_with_its_parent(rig: Rig) -> None:
    options = json.dumps({"delay_s": 5.0})
    orphaning = (
        "import subprocess, sys, json, os, time\n"
        "options = json.dumps(json.loads(sys.argv[2]) | {'parent_pid': os.getpid()})\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tests.api.rig', sys.argv[1], options])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    job = await rig.submit(story())
    parent = subprocess.Popen(
        [sys.executable, "-c", orphaning, str(rig.folder), options], cwd=ROOT, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        await until(lambda: len(noted_calls(rig.folder)) >= 1)
        parent.kill()
    await rig.reaches(job, lambda found: found.state is JobState.QUEUED)
    await until(lambda: not is_running(child))


async def test_a_job_that_ends_its_runner_is_given_up_and_the_others_go_on(rig: Rig, spawn: Spawn) -> None:
    poison = await rig.submit(story())
    for attempt in range(1, 5):
        deadly = spawn(dies_on_claim=True)
        assert await asyncio.to_thread(deadly.wait, 30) == 1
        assert (await rig.find(poison)).attempt == attempt
    innocent = await rig.submit(story(6, fact_at=2))
    spawn()
    done = await rig.ended(poison)
    assert done.state is JobState.FAILED
    assert done.error is not None
    assert "given up" in done.error["message"]
    assert (await rig.ended(innocent)).state is JobState.COMPLETED


async def test_a_database_that_is_locked_for_a_while_loses_no_event(rig: Rig, tmp_path: Path) -> None:
    text = story()
    golden, golden_events, _ = await undisturbed(tmp_path / "golden", text)
    model = ScriptedModel(noting(reader(), rig.folder, delay_s=0.05))
    running = asyncio.create_task(rig.runner(model).run())
    job = await rig.submit(text)
    await until(lambda: len(noted_calls(rig.folder)) >= 3)
    other = sqlite3.connect(rig.folder / "longfold.sqlite", isolation_level=None, check_same_thread=False, timeout=30)
    await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")  # it may have to wait for the runner, which runs here
    await asyncio.sleep(6.0)  # longer than a write waits for a lock
    other.execute("ROLLBACK")
    other.close()
    done = await rig.ended(job)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert essence(done) == essence(golden)
    assert told(await rig.store.events(job.id)) == told(golden_events)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own. What the model notes of its calls goes elsewhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk of its own: {mounted.stderr.strip()}")
    (folder / "calls").symlink_to(tmp_path / "calls")
    (tmp_path / "calls").touch()
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that there is; removing the file gives it back."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler


async def test_a_job_on_a_full_disk_pays_for_nothing_and_goes_on_when_there_is_room(disk: Path, tmp_path: Path) -> None:
    text = story(120, fact_at=90)
    golden, golden_events, unique = await undisturbed(tmp_path / "golden", text)
    rig = await Rig.open(disk)
    job = await rig.submit(text)
    runner = subprocess.Popen(
        [sys.executable, "-m", "tests.api.rig", str(disk), json.dumps({"delay_s": 0.2})], cwd=ROOT
    )
    try:
        await until(lambda: len(noted_calls(disk)) > 12)
        filler = fill(disk)
        at_full = len(noted_calls(disk))
        await asyncio.sleep(2.0)
        waiting = len(noted_calls(disk))
        assert waiting <= at_full + 2 * MAX_CALLS, "what was under way, and no more"
        await asyncio.sleep(3.0)
        assert len(noted_calls(disk)) == waiting < unique
        filler.unlink()
        done = await rig.ended(job)
    finally:
        runner.terminate()
        assert await asyncio.to_thread(runner.wait, 20) == 0
    assert (done.state, done.attempt) == (JobState.COMPLETED, 1)
    assert essence(done) == essence(golden)
    events = await rig.store.events(job.id)
    warned = [event.data["message"] for event in events if event.kind == "warning"]
    assert [words for words in warned if "disk" in words] == [
        "The disk is full: the run waits, and goes on when there is room.",
        "There is room on the disk again; the run goes on.",
    ]
    assert told([event for event in events if event.kind != "warning"]) == told(golden_events)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert max(Counter(key for key, _ in noted_calls(disk)).values()) == 1, "nothing is paid twice"
    await rig.database.check_integrity()
    await rig.database.close()


async def test_a_runner_that_is_to_end_on_a_full_disk_ends_and_its_job_goes_on_later(
    disk: Path, tmp_path: Path
) -> None:
    text = story(120, fact_at=90)
    golden, _, unique = await undisturbed(tmp_path / "golden", text)
    rig = await Rig.open(disk)
    job = await rig.submit(text)
    command = [sys.executable, "-m", "tests.api.rig", str(disk), json.dumps({"delay_s": 0.2})]
    runner = subprocess.Popen(command, cwd=ROOT)
    await until(lambda: len(noted_calls(disk)) > 12)
    filler = fill(disk)
    await asyncio.sleep(1.5)
    assert (await rig.find(job)).state is JobState.RUNNING, "polls are answered"
    runner.terminate()
    assert await asyncio.to_thread(runner.wait, STOP_S) == 0
    filler.unlink()
    runner = subprocess.Popen(command, cwd=ROOT)
    done = await rig.ended(job)
    runner.terminate()
    assert await asyncio.to_thread(runner.wait, 20) == 0
    assert essence(done) == essence(golden)
    assert len(noted_calls(disk)) <= unique + 2 * MAX_CALLS
    await rig.database.check_integrity()
    await rig.database.close()


async def test_a_cancel_asked_for_while_no_runner_lived_is_heard_by_the_next(rig: Rig, spawn: Spawn) -> None:
    job = await rig.submit(story())
    process = spawn(delay_s=5.0)
    await until(lambda: len(noted_calls(rig.folder)) >= 1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    await rig.store.request_cancel(job.id, OWNER)
    spawn(delay_s=5.0)
    assert (await rig.ended(job)).state is JobState.CANCELLED
