"""`longfold serve`: what it starts, how it stops, and what survives its death."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pipeline.errors import SettingInvalid
from serving.cli.serve import is_loopback, listen
from serving.jobs.supervisor import SILENCE_S, Supervisor
from tests.api.conftest import ServeProcess, StartServe, is_running
from tests.api.rig import QUESTION, noted_calls, story, until
from tests.api.server import Server


def post_job(url: str, text: str) -> str:
    answer = httpx2.post(f"{url}/v1/jobs", json={"question": QUESTION, "text": text}, timeout=20)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def get_job(url: str, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = httpx2.get(f"{url}/v1/jobs/{job_id}", timeout=20).json()
    return job


def wait_for(url: str, job_id: str, *states: str, within_s: float = 120.0) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while (job := get_job(url, job_id))["state"] not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return job


def runner_pids(folder: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob("runner-*"))


def test_a_job_over_http_is_answered(server: Server) -> None:
    job_id = post_job(server.url, story())
    wait_for(server.url, job_id, "completed")
    result = httpx2.get(f"{server.url}/v1/jobs/{job_id}/result").json()
    assert result["answer"] == "Ada Quill"


def test_a_key_that_was_made_is_asked_for(server: Server) -> None:
    secret = server.make_key()
    assert httpx2.get(f"{server.url}/v1/jobs").status_code == 401
    headers = {"authorization": f"Bearer {secret}"}
    assert httpx2.get(f"{server.url}/v1/jobs", headers=headers).status_code == 200


async def test_a_termination_gives_jobs_back_and_ends_all_with_zero(start_serve: StartServe) -> None:
    serve = start_serve(delay_s=5.0)
    job_id = post_job(serve.url, story())
    await until(lambda: len(noted_calls(serve.folder)) > 0)
    [runner] = runner_pids(serve.folder)
    began = time.monotonic()
    assert await asyncio.to_thread(serve.end) == 0
    assert time.monotonic() - began < 20.0
    assert not is_running(runner)
    with sqlite3.connect(serve.folder / "longfold.sqlite") as connection:
        [(state, attempt)] = connection.execute("SELECT state, attempt FROM jobs WHERE id = ?", (job_id[4:],))
    connection.close()
    assert (state, attempt) == ("queued", 0)


async def test_a_server_that_is_killed_loses_no_job_and_its_successor_finishes_them(start_serve: StartServe) -> None:
    first = start_serve(delay_s=1.5)
    job_id = post_job(first.url, story(120, fact_at=90))
    await until(lambda: len(noted_calls(first.folder)) > 8)
    [runner] = runner_pids(first.folder)
    first.end(signal.SIGKILL)
    await until(lambda: not is_running(runner))
    calls = len(noted_calls(first.folder))
    second = start_serve(delay_s=0.0)
    assert get_job(second.url, job_id)["state"] in ("queued", "running", "completed")
    await asyncio.to_thread(wait_for, second.url, job_id, "completed")
    result = httpx2.get(f"{second.url}/v1/jobs/{job_id}/result").json()
    assert result["answer"] == "Ada Quill"
    keys = [key for key, _ in noted_calls(first.folder)]
    assert len(keys) - len(set(keys)) <= 4, "at most the calls that were under way are made again"
    assert len(keys) > calls
    assert second.end() == 0


async def test_a_runner_that_dies_is_started_again_while_the_gateway_answers(start_serve: StartServe) -> None:
    serve = start_serve(delay_s=0.05)
    job_id = post_job(serve.url, story())
    await until(lambda: len(noted_calls(serve.folder)) > 3)
    [runner] = runner_pids(serve.folder)
    os.kill(runner, signal.SIGKILL)
    # Its lease is released as soon as the parent has seen it die: the job is then queued for the next runner.
    assert get_job(serve.url, job_id)["state"] in {"running", "queued"}
    await asyncio.to_thread(wait_for, serve.url, job_id, "completed")
    assert len(runner_pids(serve.folder)) == 2
    assert serve.end() == 0


async def test_a_runner_that_dies_holds_nothing_up_for_the_length_of_a_lease(start_serve: StartServe) -> None:
    serve = start_serve(delay_s=1.0, lease_s=120.0)
    job_id = post_job(serve.url, story())
    await until(lambda: len(noted_calls(serve.folder)) > 3)
    [runner] = runner_pids(serve.folder)
    began_s = time.monotonic()
    os.kill(runner, signal.SIGKILL)
    await until(lambda: {pid for _, pid in noted_calls(serve.folder)} - {runner} != set())
    assert time.monotonic() - began_s < 60.0, "its parent has given its jobs back"
    assert get_job(serve.url, job_id)["attempt"] == 2
    assert serve.end() == 0


@pytest.mark.parametrize("within_a_write", [False, True])
async def test_a_runner_that_hangs_is_replaced_and_holds_up_no_post(
    start_serve: StartServe, within_a_write: bool
) -> None:
    serve = start_serve(delay_s=0.5)
    job_id = post_job(serve.url, story())
    await until(lambda: len(noted_calls(serve.folder)) > 3)
    await until(lambda: httpx2.get(f"{serve.url}/readyz").status_code == 200)
    [runner] = runner_pids(serve.folder)
    began_s = time.monotonic()
    await asyncio.to_thread(freeze, runner, serve.folder / "longfold.sqlite", within_a_write)
    posted = await asyncio.to_thread(post_job, serve.url, story(6, fact_at=2))
    assert time.monotonic() - began_s < SILENCE_S + 15.0
    await until(lambda: len(runner_pids(serve.folder)) == 2)
    assert not is_running(runner)
    for each in (job_id, posted):
        await asyncio.to_thread(wait_for, serve.url, each, "completed")
    assert serve.end() == 0


async def test_a_gateway_whose_runner_hangs_says_so_before_it_is_replaced(start_serve: StartServe) -> None:
    serve = start_serve()
    await until(lambda: httpx2.get(f"{serve.url}/readyz").status_code == 200)
    [runner] = runner_pids(serve.folder)
    os.kill(runner, signal.SIGSTOP)
    seen: list[str] = []

    def is_replaced() -> bool:
        answer = httpx2.get(f"{serve.url}/readyz")
        seen.extend(words for words in answer.json()["missing"] if words not in seen)
        return answer.status_code == 200 and len(runner_pids(serve.folder)) == 2

    await until(is_replaced)
    assert any("has not answered for" in words for words in seen), seen
    assert serve.end() == 0


def freeze(pid: int, database: Path, within_a_write: bool) -> None:
    """Stop a runner, while it holds SQLite's lock or while it does not."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        os.kill(pid, signal.SIGSTOP)
        if is_locked(database) == within_a_write:
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(random.uniform(0.0, 0.02))
    raise AssertionError("it was never caught")


def is_locked(database: Path) -> bool:
    connection = sqlite3.connect(database, isolation_level=None, timeout=0.0)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


async def test_a_stream_goes_on_after_the_gateway_was_killed_without_gap_or_repeat(start_serve: StartServe) -> None:
    serve = start_serve(delay_s=0.3)
    port = int(serve.url.rpartition(":")[2])
    job_id = post_job(serve.url, story(120, fact_at=90))
    ids: list[int] = []
    kinds: list[str] = []
    for _ in range(2):
        with pytest.raises(httpx2.HTTPError):
            await follow(serve, job_id, ids, kinds, kill_after=12)
        serve = start_serve(delay_s=0.3, port=port)
    assert len(ids) >= 24
    await follow(serve, job_id, ids, kinds)
    assert ids == list(range(1, len(ids) + 1))
    assert kinds[-1] == "job.completed"
    assert kinds.count("job.started") >= 2
    assert serve.end() == 0


async def follow(serve: ServeProcess, job_id: str, ids: list[int], kinds: list[str], *, kill_after: int = 0) -> None:
    """Read a job's events from where `ids` end, and add to it; after so many kill the server and read on."""
    headers = {"last-event-id": str(ids[-1])} if ids else {}
    goal = len(ids) + kill_after
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("GET", f"{serve.url}/v1/jobs/{job_id}/events", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                ids.append(int(value))
            elif name == "event":
                kinds.append(value)
            if kill_after and len(ids) == goal:
                await asyncio.to_thread(serve.end, signal.SIGKILL)


async def test_a_chat_whose_client_does_not_come_back_after_a_kill_is_cancelled(start_serve: StartServe) -> None:
    serve = start_serve(delay_s=20.0, return_s=2.0)
    with pytest.raises(httpx2.HTTPError):
        await chat_until_killed(serve)
    serve = start_serve(delay_s=20.0, return_s=2.0)
    other = post_job(serve.url, story())

    def states() -> dict[str, str]:
        return {job["id"]: job["state"] for job in httpx2.get(f"{serve.url}/v1/jobs").json()["data"]}

    await until(lambda: "cancelled" in states().values())
    assert states()[other] in ("queued", "running"), "a job that waits for nobody goes on"
    assert serve.end() == 0


async def chat_until_killed(serve: ServeProcess) -> None:
    files = {"file": ("story.txt", story().encode()), "purpose": (None, "user_data")}
    file_id = httpx2.post(f"{serve.url}/v1/files", files=files, timeout=20).json()["id"]
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": "mapreduce", "stream": True, "messages": messages, "longfold": {"file_ids": [file_id]}}
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{serve.url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        async for _ in answer.aiter_lines():
            await until(lambda: len(noted_calls(serve.folder)) > 0)
            await asyncio.to_thread(serve.end, signal.SIGKILL)


async def test_an_open_event_stream_does_not_hold_up_the_end(start_serve: StartServe) -> None:
    serve: ServeProcess = start_serve(delay_s=5.0)
    job_id = post_job(serve.url, story())
    async with (
        httpx2.AsyncClient(timeout=20) as client,
        client.stream("GET", f"{serve.url}/v1/jobs/{job_id}/events") as events,
    ):
        lines = events.aiter_lines()
        assert await anext(lines)
        assert await asyncio.to_thread(serve.end) == 0


async def test_a_child_that_says_it_cannot_start_is_not_started_again() -> None:
    with pytest.raises(SettingInvalid, match="cannot start"):
        await Supervisor(["sh", "-c", "exit 2"]).keep()


async def test_a_child_that_keeps_dying_is_started_with_growing_pauses(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = ["sh", "-c", f"date +%s.%N >> {starts}; exit 1"]
    supervisor = Supervisor(command, pauses_s=(0.1, 0.2, 0.8))
    keeping = asyncio.create_task(supervisor.keep())
    await until(lambda: starts.exists() and len(starts.read_text().splitlines()) >= 4)
    await supervisor.stop()
    await keeping
    at = [float(line) for line in starts.read_text().splitlines()]
    assert at[1] - at[0] >= 0.2
    assert at[3] - at[2] >= 0.8


async def test_a_child_that_does_not_end_is_killed() -> None:
    supervisor = Supervisor(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    keeping = asyncio.create_task(supervisor.keep())
    await until(lambda: supervisor.pid is not None)
    await asyncio.sleep(0.3)
    await supervisor.stop(within_s=0.5)
    await keeping
    assert supervisor.pid is None


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingInvalid, match=str(port)), listen("127.0.0.1", port):
            pass


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("gpu-1", False)],  # noqa: S104
)
def test_only_an_address_of_this_machine_alone_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_public_address_wants_a_key_first(start_serve: StartServe) -> None:
    with pytest.raises(AssertionError, match="ended with 1"):
        start_serve(environment={"LONGFOLD_HOST": "0.0.0.0"})  # noqa: S104
