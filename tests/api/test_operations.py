"""What surrounds every request: ids, traces, logs, metrics, health, headers, pages, the description."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.dispatch.journal import RESERVE_BYTES
from pipeline.errors import OutOfMemory
from serving.api import http_server
from serving.api.ops.health import STANDS_STILL_S, RunnerWatch
from serving.jobs.job import JobState, RunnerStatus
from serving.jobs.runner import new_status
from serving.jobs.runner_process import report_start
from serving.jobs.supervisor import Supervisor
from serving.logging import JsonLines
from tests.api.gateway_rig import TEXT, Rig, running_gateway
from tests.api.rig import until

CANARY = "CANARY-7f3a9"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as running:
        yield running


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that any logger says at any level, as JSON lines."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


async def test_request_ids_are_taken_over_if_they_are_harmless(rig: Rig) -> None:
    async def sent(request_id: str) -> str:
        return (await rig.client.get("/healthz", headers={"x-request-id": request_id})).headers["x-request-id"]

    assert await sent("abc-1.2_3") == "abc-1.2_3"
    for bad in ("", "a b", "x" * 200, "<script>", "a;b"):
        assert re.fullmatch(r"req_[0-9A-Z]{26}", await sent(bad))


async def test_a_trace_is_continued_with_a_span_of_our_own(rig: Rig) -> None:
    async def sent(traceparent: str) -> str:
        return (await rig.client.get("/healthz", headers={"traceparent": traceparent})).headers["traceparent"]

    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    version, kept, own, flags = (await sent(f"00-{trace}-{span}-01")).split("-")
    assert (version, kept, flags) == ("00", trace, "01")
    assert own != span
    for bad in ("", "00-" + "0" * 32 + f"-{span}-01", f"00-{trace}-{'0' * 16}-01", "nonsense"):
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", await sent(bad))
        assert trace not in await sent(bad)


async def test_no_key_and_no_document_text_reaches_log_or_metrics(rig: Rig, logged: io.StringIO) -> None:
    headers = await rig.make_key("test")
    secret = headers["authorization"].removeprefix("Bearer ")
    body = {"question": f"Where is {CANARY}?", "text": f"{TEXT} {CANARY}", "metadata": {"note": CANARY}}
    job = (await rig.client.post("/v1/jobs", json=body, headers=headers)).json()
    await rig.client.post("/v1/jobs:estimate", json=body, headers=headers)
    await rig.client.post("/v1/jobs", json=body | {CANARY: 1}, headers=headers)
    await rig.client.post("/v1/jobs", content=f"{{{CANARY}", headers=headers | {"content-type": "application/json"})
    files = {"file": (f"{CANARY}.txt", f"words {CANARY}".encode())}
    await rig.client.post("/v1/files", files=files, headers=headers)
    claim = await rig.claim()
    await rig.finish(claim, JobState.FAILED, error={"type": "CallTimedOut", "message": CANARY})
    for path in ("", "/text", "/events", "/result", "/tree", "/evidence"):
        await rig.client.get(f"/v1/jobs/{job['id']}{path}?x={CANARY}", headers=headers)
    await rig.client.get(f"/{CANARY}?key={secret}", headers={"authorization": f"Bearer {secret}x"})
    metrics = (await rig.client.get("/metrics")).text
    text = logged.getvalue()
    own = [line for line in map(json.loads, text.splitlines()) if line["logger"].startswith(("longfold", "uvicorn"))]
    assert len(own) > 10
    for hidden in (CANARY, secret, secret[-43:], "door of the house"):
        assert hidden not in json.dumps(own)
        assert hidden not in metrics
    finished = [line for line in own if line["event"] == "request.finished"]
    first = finished[0]
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/jobs", 202)
    assert first["job_id"] == job["id"].removeprefix("job_")
    assert first["key_id"] == secret.split("_")[1]
    assert {line["route"] for line in finished} >= {"/v1/jobs/{job_id}/text", "/v1/files", "unmatched"}


async def test_a_fault_of_ours_is_told_without_its_inside(
    rig: Rig, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ValueError(f"cannot handle {CANARY}")

    monkeypatch.setattr(rig.store, "list_jobs", broken)
    answer = await rig.client.get("/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert (answer.headers["content-type"], answer.headers["x-should-retry"]) == ("application/problem+json", "false")
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert CANARY not in answer.text
    assert "Traceback" not in answer.text
    [line] = [line for line in map(json.loads, logged.getvalue().splitlines()) if line["event"] == "request.failed"]
    assert line["error"] == "ValueError"
    assert "broken" in line["at"][-1]
    assert CANARY not in logged.getvalue()


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/nothing", 404, "application/json"),
        ("GET", "/v1/jobs/unknown", 404, "application/problem+json"),
        ("PUT", "/v1/jobs", 405, "application/problem+json"),
        ("DELETE", "/v1/files", 405, "application/json"),
        ("POST", "/anything", 404, "application/json"),
        ("GET", "/v1/jobs?limit=many", 422, "application/problem+json"),
        ("POST", "/v1/jobs", 422, "application/problem+json"),
    ],
)
async def test_the_frameworks_errors_have_the_same_shape(
    rig: Rig, method: str, path: str, status: int, kind: str
) -> None:
    answer = await rig.client.request(method, path)
    body = answer.json()
    assert (answer.status_code, body["status"], answer.headers["content-type"]) == (status, status, kind)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["type"].endswith(body["error"]["code"])
    assert answer.headers["x-should-retry"] == "false"
    if status == 405:
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:estimate", "/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"question": "\xff"}', b"[" * 100_000, b'{"n": ' + b"9" * 5000], ids=range(5)
)
async def test_what_is_not_json_is_called_so_on_every_route(rig: Rig, path: str, body: bytes) -> None:
    answer = await rig.client.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"5"])
async def test_a_body_that_is_no_object_is_told_what_to_be(rig: Rig, body: bytes) -> None:
    answer = await rig.client.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    untyped = await rig.client.post("/v1/jobs", content=b'{"question": "Who?", "text": "Ada."}')
    for each in (answer, untyped):
        assert (each.status_code, "application/json" in each.json()["error"]["message"]) == (422, True)


async def test_a_long_body_is_refused_while_it_is_read(rig: Rig) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"question": "Why?", "text": "'
        for _ in range(40):
            yield b"x" * (1 << 20)

    answer = await rig.client.post("/v1/jobs", content=pieces(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_a_connection_whose_headers_do_not_come_is_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_S", 0.5)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    began_s = time.monotonic()
    for sent, answers in ((b"", 0), (whole[:20], 0), (whole + whole[:20], 1)):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(rig.url).port)
        for piece in (sent[:-1], sent[-1:]):
            writer.write(piece)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            assert (await reader.read()).count(b"HTTP/1.1 200 OK") == answers
        writer.close()
    assert time.monotonic() - began_s < 15


async def test_a_slow_body_and_a_slow_answer_are_no_slow_headers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_S", 0.2)

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b'{"question": "Which?", ', b'"text": "The door ', b'is green."}'):
            yield piece
            await asyncio.sleep(0.3)

    answer = await rig.client.post("/v1/jobs", content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 202


async def test_a_locked_database_is_503_and_comes_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.database, "_turn_s", 0.2)
    async with rig.database._turn:
        answer = await rig.client.post("/v1/jobs", json={"question": "Which?", "text": TEXT})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_busy")
    assert "retry-after" in answer.headers
    assert "x-should-retry" not in answer.headers
    await rig.submit()


async def test_ready_means_that_a_runners_beat_moves_and_that_it_is_ready(rig: Rig) -> None:
    now_s = 0.0
    watch = RunnerWatch(rig.store, clock=lambda: now_s)
    rig.app.state.runners = watch

    async def readiness() -> tuple[int, str]:
        await watch.look()
        answer = await rig.client.get("/readyz")
        return answer.status_code, " ".join(answer.json()["missing"])

    assert (await readiness())[0] == 503
    await rig.beat(1)
    assert (await readiness())[0] == 503, "one look does not tell whether it moves"
    now_s = 2.0
    await rig.beat(2)
    assert await readiness() == (200, "")
    await rig.beat(3, ready=False)
    status, missing = await readiness()
    assert status == 503
    assert "warming up" in missing
    await rig.beat(4)
    assert (await readiness())[0] == 200
    now_s += STANDS_STILL_S
    status, missing = await readiness()
    assert status == 503
    assert "No runner is alive; the last one said: warming up" in missing
    assert (await rig.client.get("/healthz")).json() == {"status": "ok"}


@pytest.fixture
def starting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> RunnerStatus:
    monkeypatch.setattr("serving.jobs.runner_process.REPORT_S", 0.05)
    return new_status(rig.gateway.model.profile)


async def test_while_the_model_loads_the_gateway_says_so_and_since_when(rig: Rig, starting: RunnerStatus) -> None:
    """The thread that loads is blocked all the time, as by Ray."""
    watch = rig.app.state.runners = RunnerWatch(rig.store)
    reported: list[str] = []
    loaded = threading.Event()

    def load(tell: Callable[[str], None]) -> str:
        tell("loading the model, 5 s")
        loaded.wait(30)
        return "a session"

    await watch.look()
    loading = asyncio.create_task(report_start(rig.store, starting, load, reported.append))
    answer = await rig.client.get("/readyz")
    assert (answer.status_code, "only just started" in answer.json()["missing"][0]) == (503, True)

    async def seen() -> bool:
        await watch.look()
        return bool(watch.alive)

    await until(seen)
    answer = await rig.client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["missing"]) == (503, ["The runner is not ready: loading the model, 5 s"])
    [runner] = body["runners"]
    assert (runner["ready"], runner["model"]) == (False, "model")
    assert 0 <= time.time() - runner["since"] < 60
    loaded.set()
    assert await loading == "a session"
    assert reported == ["loading the model, 5 s"]
    await rig.store.report_runner(replace(starting, beat=1000, ready=True))
    await watch.look()
    assert (await rig.client.get("/readyz")).status_code == 200, "it is the same runner, and alive all the time"


async def test_a_start_that_failed_leaves_its_reason_and_one_that_was_interrupted_nothing(
    rig: Rig, starting: RunnerStatus
) -> None:
    async def fail(error: Exception) -> None:
        def load(_: Callable[[str], None]) -> None:
            raise error

        with pytest.raises(type(error)):
            await report_start(rig.store, starting, load, print)

    await fail(OutOfMemory("it needs 40 GiB"))
    now_s = 0.0
    watch = rig.app.state.runners = RunnerWatch(rig.store, clock=lambda: now_s)
    now_s = STANDS_STILL_S
    await watch.look()
    missing = (await rig.client.get("/readyz")).json()["missing"][0]
    assert "the last one said: it did not start: it needs 40 GiB. " in missing
    await fail(ValueError("text of a document"))
    assert [runner.message for runner in await rig.store.runners()] == ["it did not start: ValueError"]
    loading = asyncio.create_task(report_start(rig.store, starting, lambda tell: time.sleep(1.0), print))
    await asyncio.sleep(0.2)
    assert [runner.message for runner in await rig.store.runners()] == ["starting"]
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert await rig.store.runners() == []


async def test_a_full_disk_is_named_before_the_runner_that_cannot_write(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.app.state.runners = watch = RunnerWatch(rig.store)
    await watch.look()
    used = shutil.disk_usage(rig.folder)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: used._replace(free=RESERVE_BYTES - 1))
    answer = await rig.client.get("/readyz")
    first, second = answer.json()["missing"]
    assert answer.status_code == 503
    assert first == f"The disk of {rig.folder / 'state'} is full; jobs wait until there is room."
    assert "runner" in second


async def test_a_state_folder_that_nothing_has_made_yet_is_no_fault(rig: Rig, tmp_path: Path) -> None:
    """With Postgres: the first upload makes it."""
    settings = rig.gateway.settings.model_copy(update={"state_dir": tmp_path / "not" / "yet"})
    rig.gateway.settings = settings
    rig.app.state.runners = watch = RunnerWatch(rig.store)
    for number in (1, 2):
        await rig.beat(number)
        await watch.look()
    answer = await rig.client.get("/readyz")
    assert (answer.status_code, answer.json()["missing"]) == (200, [])
    assert (await rig.client.get("/metrics")).status_code == 200


async def test_a_runner_of_our_own_that_hangs_is_told_of_at_once_and_another_one_is_enough(rig: Rig) -> None:
    rig.app.state.runners = watch = RunnerWatch(rig.store)
    for number in (1, 2):
        await rig.beat(number)
        await watch.look()
    own = Supervisor(["true"])
    own.runner_id, own.trouble = "hand", "has not answered for 6 s; it is replaced if it stays silent"
    rig.gateway.runner = own
    answer = await rig.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["missing"] == ["The runner has not answered for 6 s; it is replaced if it stays silent."]
    own.runner_id = "another"
    assert (await rig.client.get("/readyz")).status_code == 200
    rig.gateway.runner = None


async def test_not_ready_without_its_database(rig: Rig) -> None:
    def lose_a_table() -> None:
        with sqlite3.connect(rig.folder / "state" / "longfold.sqlite", timeout=30) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ALTER TABLE runners RENAME TO gone")

    # In a thread: a transaction of the gateway that is open just now ends in this event loop.
    await asyncio.to_thread(lose_a_table)
    await rig.app.state.runners.look()
    answer = await rig.client.get("/readyz")
    assert answer.status_code == 503
    assert "database" in answer.json()["missing"][0]


async def test_metrics_are_what_prometheus_reads(rig: Rig) -> None:
    watch = RunnerWatch(rig.store)
    rig.app.state.runners = watch
    for number in (1, 2):
        await rig.beat(number)
        await watch.look()
    await rig.submit()
    second = await rig.submit(strategy="reference")
    await rig.client.get(f"/v1/jobs/{second}")
    totals = {
        ("longfold_model_calls_total", (("outcome", "ok"), ("stage", "map"))): 7.0,
        ("longfold_chunks_total", (("outcome", "ok"),)): 9.0,
        ("longfold_chunks_total", (("outcome", "failed"),)): 1.0,
        ("longfold_job_duration_seconds_count", ()): 1.0,
        ("longfold_job_duration_seconds_sum", ()): 12.5,
        ("longfold_job_duration_seconds_bucket", (("le", "10"),)): 0.0,
        ("longfold_job_duration_seconds_bucket", (("le", "+Inf"),)): 1.0,
        ("longfold_job_duration_seconds_bucket", (("le", "2.5"),)): 0.0,
    }
    await rig.finish(await rig.claim(), totals=totals)
    answer = await rig.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["longfold_jobs", (("state", "completed"), ("strategy", "auto"))] == 1
    assert samples["longfold_jobs", (("state", "queued"), ("strategy", "reference"))] == 1
    assert samples["longfold_queue_depth", ()] == 1
    assert samples["longfold_coverage_ratio", ()] == 0.9
    assert samples["longfold_replica_up", (("replica", "0"), ("runner", "0"))] == 1
    assert samples["longfold_replica_last_token_age_seconds", (("replica", "0"), ("runner", "0"))] == 1.5
    assert 0 < samples["longfold_disk_free_ratio", ()] <= 1
    for name, value in totals.items():
        assert samples[name] == value
    requests = (
        "longfold_http_request_duration_seconds_count",
        (("method", "POST"), ("route", "/v1/jobs"), ("status", "202")),
    )
    assert samples[requests] == 2
    assert second not in answer.text


async def test_every_answer_carries_the_safety_headers(rig: Rig) -> None:
    for path in ("/docs", "/healthz", "/v1/jobs", "/nothing"):
        headers = (await rig.client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy


async def test_pages_name_nothing_outside(rig: Rig) -> None:
    page = await rig.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(named) >= 4
    for path in named:
        assert path.startswith("/")
        if path != "/":
            assert (await rig.client.get(path)).status_code == 200
    script = (await rig.client.get("/docs/docs.js")).text
    assert "innerHTML" not in script
    assert "://" not in page.text + script


async def test_no_path_leads_out_of_the_pages(rig: Rig) -> None:
    for path in ("/../settings.py", "/..%2fsettings.py", "/docs/../app.py", "/docs/%2e%2e/app.py", "/console/../x"):
        answer = await rig.client.get(httpx2.URL(rig.url).copy_with(raw_path=path.encode()))
        assert answer.status_code == 404, path


async def test_the_description_is_whole(rig: Rig) -> None:
    described = (await rig.client.get("/openapi.json")).json()
    text = json.dumps(described)
    assert "HTTPValidationError" not in text
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in described["components"]["schemas"]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description") or operation.get("summary"), f"{method} {path} says nothing"
            assert {"4XX", "5XX"} <= set(operation["responses"])
    assert described["components"]["schemas"]["JobBody"]["examples"]


async def test_a_hundred_requests_at_once_do_not_wait_for_a_long_estimate(rig: Rig) -> None:
    body = {"question": "Which?", "text": TEXT * 20_000}
    estimating = asyncio.create_task(rig.client.post("/v1/jobs:estimate", json=body))
    answers = await asyncio.gather(*(rig.client.get("/healthz") for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert (await estimating).status_code == 200
