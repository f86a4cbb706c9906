"""The suite `load`: what keeps the service busy, what GuideLLM's report holds, and what the table shows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from benchmarks.suites.load import SUITE
from benchmarks.systems.guidellm import guidellm_command, read_guidellm, run_guidellm
from benchmarks.systems.long_jobs import LongJobs, number_paragraphs
from pipeline.errors import InternalError

HEADER = {"settings": {"tokens": 12_000}, "model": {"name": "m"}, "hardware": {"cpu": "a processor", "cores": 2}}


def block(number: int, long_jobs: int, whole_s: list[float]) -> dict[str, object]:
    return {
        "key": f"block/{number}/{long_jobs}", "part": "block", "round": number, "long_jobs": long_jobs,
        "running": float(long_jobs), "jobs_completed": 0, "first_s": whole_s, "whole_s": whole_s,
        "one_token_s": [0.1] * len(whole_s),
    }  # fmt: skip


class Service:
    """Jobs that run until they are cancelled, or that end as they are told."""

    def __init__(self, *, ends_as: str = "") -> None:
        self.ends_as = ends_as
        self.states: dict[str, str] = {}
        self.texts: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.split("/")
        if request.method == "POST" and len(path) == 3:
            job_id = f"job_{len(self.states)}"
            self.texts.append(json.loads(request.content)["text"])
            self.states[job_id] = self.ends_as or "running"
            return httpx2.Response(202, json={"id": job_id})
        if path[-1] == "cancel":
            self.states[path[3]] = "cancelled"
        return httpx2.Response(200, json={"id": path[3], "state": self.states[path[3]]})

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self), base_url="http://test")


async def test_long_jobs_run_while_the_block_lasts_and_not_longer() -> None:
    service = Service()
    async with service.client() as client:
        jobs = LongJobs(client, "one\n\ntwo")
        async with jobs.keep(4):
            assert jobs.running == 4
            assert list(service.states.values()) == ["running"] * 4
        assert jobs.running == 0
        assert list(service.states.values()) == ["cancelled"] * 4
        assert len(set(service.texts)) == 4
        async with jobs.keep(0):
            assert jobs.running == 0


async def test_a_long_job_that_fails_ends_the_block() -> None:
    service = Service(ends_as="failed")
    async with service.client() as client:
        with pytest.raises(ExceptionGroup) as raised:
            async with LongJobs(client, "one").keep(1):
                await asyncio.sleep(60)
    assert isinstance(raised.value.exceptions[0], InternalError)


def test_no_chunk_of_a_numbered_text_begins_as_one_of_another() -> None:
    first, second = (number_paragraphs("same\n\nsame\n\nsame", number).split("\n\n") for number in (1, 2))
    assert len({*first, *second}) == 6


def test_the_report_tells_percentiles_by_condition_and_ratios_by_round() -> None:
    rows = [block(0, 0, [1.0, 1.0]), block(0, 4, [2.0, 4.0]), block(1, 0, [1.0, 1.0]), block(1, 4, [5.0, 5.0])]
    lines = SUITE.report(HEADER, rows, [])
    assert lines[2].split() == ["0", "0.0", "4", "1.00", "/", "1.00", "1.00", "/", "1.00", "0.10", "/", "0.10"]
    assert lines[3].split()[:7] == ["4", "4.0", "4", "4.50", "/", "5.00", "4.50"]
    assert lines[-1].endswith("with 4 over alone, by round: 3.0, 5.0")
    assert SUITE.picture is not None
    assert "4 long jobs" in SUITE.picture(HEADER, rows, [])


def percentiles(value: float) -> dict[str, object]:
    return {"successful": {"percentiles": {"p50": value, "p99": 2 * value}, "mean": value}}


def test_of_guidellms_report_the_percentiles_are_kept(tmp_path: Path) -> None:
    metrics = {
        "request_totals": {"successful": 9, "errored": 1},
        "time_to_first_token_ms": percentiles(200.0),
        "request_latency": percentiles(0.3),
        "requests_per_second": percentiles(4.0),
    }
    out = tmp_path / "guidellm.json"
    out.write_text(json.dumps({"benchmarks": [{"metrics": metrics}, {"metrics": metrics}]}), "utf-8")
    alone, four = read_guidellm(out)
    assert alone == {
        "streams": 1, "chats": 9, "errors": 1, "first_p50_ms": 200.0, "first_p99_ms": 400.0,
        "whole_p50_ms": 300.0, "whole_p99_ms": 600.0, "per_s": 4.0,
    }  # fmt: skip
    assert four["streams"] == 4
    lines = SUITE.report(HEADER, [{"key": "guidellm", "part": "guidellm", "measured": [alone, four]}], [])
    assert "200 / 400" in lines[-1]


def test_guidellm_is_asked_for_nothing_that_the_api_refuses(tmp_path: Path) -> None:
    command = guidellm_command("guidellm", "http://127.0.0.1:1", "m", tmp_path, 5.0, tmp_path / "out.json")
    told = {command[n]: json.loads(command[n + 1]) for n in range(2, len(command) - 4, 2)}
    assert told["--backend"]["max_tokens"] == 32
    assert "output_tokens" not in told["--data"]


async def test_guidellms_failure_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="it broke"):
        await run_guidellm(["/bin/sh", "-c", "echo it broke; exit 3"], tmp_path / "none.json")
