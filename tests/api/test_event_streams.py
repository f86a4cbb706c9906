"""Following a job: every event once and in order, whoever breaks off, falls behind or does not read."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pipeline.errors import DatabaseBusy
from serving.api.app import begin_stop
from serving.api.stream import feed as event_feed
from serving.api.stream import sse
from serving.api.stream.sse import EventStream, comment, frame
from serving.jobs.job import JobState, NewEvent
from tests.api.gateway_rig import Rig, SseEvent, read_events, running_gateway


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as running:
        yield running


async def follow(rig: Rig, job_id: str, *, after: int | None = None, at_most: int | None = None) -> list[SseEvent]:
    headers = {} if after is None else {"last-event-id": str(after)}
    async with rig.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return await read_events(answer, at_most=at_most)


async def test_a_stream_breaks_and_goes_on_without_gap_or_repeat(rig: Rig) -> None:
    job_id = await rig.submit()
    claim = await rig.claim()
    await rig.tell(claim, 5)
    first = await follow(rig, job_id, at_most=4)
    rest = asyncio.create_task(follow(rig, job_id, after=first[-1].id))
    for number in range(5, 40):
        await rig.tell(claim, 1, first=number)
    await rig.finish(claim)
    events = first + await rest
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert (events[0].kind, events[1].kind, events[-1].kind) == ("job.queued", "job.started", "job.completed")
    assert [json.loads(event.data).get("message") for event in events[2:-1]] == [f"w{n}" for n in range(40)]
    assert all(json.loads(event.data)["seq"] == event.id for event in events)


async def test_a_gateway_that_was_restarted_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as rig:
        job_id = await rig.submit()
        claim = await rig.claim()
        await rig.tell(claim, 3)
        first = await follow(rig, job_id, at_most=3)
    async with running_gateway(tmp_path) as rig:
        await rig.finish(claim)
        rest = await follow(rig, job_id, after=first[-1].id)
    assert [event.id for event in first + rest] == [1, 2, 3, 4, 5, 6]


async def test_the_stream_of_a_job_that_ended_is_told_and_ends(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.finish(await rig.claim())
    events = await follow(rig, job_id)
    assert [event.kind for event in events] == ["job.queued", "job.started", "job.completed"]
    assert await follow(rig, job_id, after=3) == []
    assert await follow(rig, job_id, after=10**9) == []


async def test_a_retry_continues_the_stream_of_a_failed_job(rig: Rig) -> None:
    job_id = await rig.submit()
    await rig.finish(await rig.claim(), JobState.FAILED, error={"type": "CallTimedOut", "message": ""})
    await rig.client.post(f"/v1/jobs/{job_id}/retry")
    following = asyncio.create_task(follow(rig, job_id))
    await rig.finish(await rig.claim())
    kinds = [event.kind for event in await following]
    assert kinds == ["job.queued", "job.started", "job.failed", "job.queued", "job.started", "job.completed"]


async def test_a_burst_longer_than_the_buffer_reaches_a_slow_follower_whole(rig: Rig) -> None:
    job_id = await rig.submit()
    claim = await rig.claim()
    feed = rig.gateway.feed
    seen: list[int] = []

    async def slow() -> None:
        async with aclosing(feed.follow(job_id)) as records:
            async for record in records:
                seen.append(record.seq)
                if len(seen) % 100 == 0:
                    await asyncio.sleep(0.05)

    following = asyncio.create_task(slow())
    for start in range(0, 2000, 400):
        await rig.tell(claim, 400, first=start)
        await asyncio.sleep(0.02)
    await rig.finish(claim)
    await following
    assert seen == list(range(1, 2004))


async def test_two_hundred_streams_cost_one_query_per_look(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [await rig.submit(text=f"Document {n}.") for n in range(20)]
    looks: list[int] = []
    heads = rig.store.heads

    async def counted(job_ids: list[str]) -> object:
        looks.append(len(job_ids))
        return await heads(job_ids)

    monkeypatch.setattr(rig.store, "heads", counted)
    following = [asyncio.create_task(follow(rig, job_id)) for job_id in ids for _ in range(10)]
    while rig.gateway.feed.followers < 200:
        await asyncio.sleep(0.05)
    before = len(looks)
    await asyncio.sleep(0.5)
    assert len(looks) - before <= 20
    assert looks[-1] == 20
    for _ in ids:
        claim = await rig.claim()
        await rig.tell(claim, 3)
        await rig.finish(claim)
    for events in await asyncio.gather(*following):
        assert [event.id for event in events] == [1, 2, 3, 4, 5, 6]


async def test_a_write_is_noticed_before_the_next_poll_is_due(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "_IDLE_POLL_S", 60.0)  # longer than the client waits
    job_id = await rig.submit()
    claim = await rig.claim()
    following = asyncio.create_task(follow(rig, job_id))
    await asyncio.sleep(0.5)
    await rig.tell(claim, 1)
    await asyncio.sleep(0.5)
    await rig.finish(claim)
    assert [event.kind for event in await following] == ["job.queued", "job.started", "warning", "job.completed"]


async def test_a_reader_that_does_not_read_is_let_go_and_hinders_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "SEND_TIMEOUT_S", 0.5)
    job_id = await rig.submit()
    claim = await rig.claim()
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stuck, ("127.0.0.1", int(rig.url.rpartition(":")[2])))
        await loop.sock_sendall(stuck, f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while rig.gateway.feed.followers < 1:
            await asyncio.sleep(0.01)
        reading = asyncio.create_task(follow(rig, job_id))
        long = "x" * 20_000
        for page in range(20):
            told = [{"message": f"{page}.{number} {long}"} for number in range(20)]
            await rig.store.append(claim, [NewEvent(kind="warning", data=data) for data in told])
        began = time.monotonic()
        while rig.gateway.feed.followers > 1:
            await asyncio.sleep(0.05)
            assert time.monotonic() - began < 10
        await rig.finish(claim)
        assert [event.id for event in await reading] == list(range(1, 404))


async def test_a_database_that_is_busy_for_a_while_delays_events_and_loses_none(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "_AFTER_FAULT_S", 0.05)
    job_id = await rig.submit()
    claim = await rig.claim()
    heads, events = rig.store.heads, rig.store.events
    faults = iter(range(8))

    async def busy_heads(job_ids: list[str]) -> object:
        if next(faults, None) is not None:
            raise DatabaseBusy
        return await heads(job_ids)

    async def busy_events(*args: object, **fields: object) -> object:
        if next(faults, None) is not None:
            raise DatabaseBusy
        return await events(*args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.store, "heads", busy_heads)
    monkeypatch.setattr(rig.store, "events", busy_events)
    following = asyncio.create_task(follow(rig, job_id))
    await rig.tell(claim, 4)
    await rig.finish(claim)
    assert [event.id for event in await following] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_stopping_gateway_says_goodbye_and_takes_nothing_new(rig: Rig) -> None:
    job_id = await rig.submit()
    async with rig.client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "id: 1"
        begin_stop(rig.gateway)
        assert [line async for line in lines][-2].startswith(": the gateway is stopping")
    refused = await rig.client.post("/v1/jobs", json={"question": "Why?", "text": "Because."})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
    assert "x-should-retry" not in refused.headers
    assert "retry-after" in refused.headers


async def test_waiting_for_the_end_of_a_job_returns_its_state(rig: Rig) -> None:
    job_id = await rig.submit()
    waiting = asyncio.create_task(rig.gateway.feed.wait_terminal(job_id))
    await rig.finish(await rig.claim())
    assert await waiting is JobState.COMPLETED
    assert await rig.gateway.feed.wait_terminal(job_id) is JobState.COMPLETED
    assert await rig.gateway.feed.wait_terminal("01K9ZJ3W5T8Q4V6X2B7N9M1C0D") is None


def test_an_event_is_one_line_whatever_its_text_holds() -> None:
    """Readers end a line at CR and LF alone; what else Unicode calls a line end belongs to the text."""
    text = "a\u2028b\x85c\x0bd\re\nf"
    head, line, *rest = frame({"text": text}, event="written").decode().split("\n")
    assert (head, rest) == ("event: written", ["", ""])
    assert json.loads(line.removeprefix("data: ")) == {"text": text}


async def test_a_quiet_stream_is_kept_alive_with_comments() -> None:
    async def quiet() -> AsyncIterator[bytes]:
        yield frame({"answer": "grün\nund rot"}, event="provisional", id=7)
        await asyncio.sleep(0.35)

    sent: list[bytes] = []

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            sent.append(bytes(message["body"]))  # type: ignore[arg-type]

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    stream = EventStream(quiet(), asyncio.Event(), keep_alive_s=0.1, keep_alive_text=lambda: "map 3/9")
    await stream({"type": "http"}, receive, send)  # type: ignore[arg-type]
    assert sent[0] == 'id: 7\nevent: provisional\ndata: {"answer":"grün\\nund rot"}\n\n'.encode()
    assert sent[1:-1] == [comment("map 3/9")] * 3
    assert sent[-1] == b""


@pytest.mark.parametrize("given", ["abc", "-1", "1.5", "٣", "9" * 40])
async def test_a_last_event_id_that_is_no_number_is_refused(rig: Rig, given: str) -> None:
    job_id = await rig.submit()
    answer = await rig.client.get(f"/v1/jobs/{job_id}/events", headers={b"last-event-id": given.encode()})
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "Last-Event-ID")
