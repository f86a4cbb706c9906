"""The clients of the `gateway` suite: requests that are timed, event streams that are kept, an upload."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from pipeline.errors import InternalError

Send = Callable[[int], Awaitable[httpx2.Response]]
"""From a request's number to its answer."""
LONGEST_S = 300.0
_PAGE = b"The harbour was quiet that morning and the boats lay still.\n" * 1000


def open_client(url: str) -> httpx2.AsyncClient:
    """Connections are kept and not bounded, so that nothing waits on this side."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=LONGEST_S, limits=limits, trust_env=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Of requests that were all answered well."""

    seconds: Sequence[float]
    wall_s: float


async def time_requests(client: httpx2.AsyncClient, send: Send, *, clients: int, requests: int) -> Timings:
    """By so many clients, each of which waits for its answer. Raises InternalError for a bad one."""
    await asyncio.gather(*(client.get("/healthz") for _ in range(clients)))  # opens the connections
    numbers = iter(range(requests))
    seconds: list[float] = []

    async def work() -> None:
        for number in numbers:
            started = time.perf_counter()
            answer = await send(number)
            seconds.append(time.perf_counter() - started)
            check(answer)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return Timings(seconds=seconds, wall_s=time.perf_counter() - began)


async def until_ready(client: httpx2.AsyncClient, limit_s: float = 60.0) -> None:
    """Return when a model generates. Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # it is reached over HTTP only
            await asyncio.sleep(0.1)


def check(answer: httpx2.Response) -> dict[str, Any]:
    """The body. Raises InternalError for an answer that is no success."""
    if not answer.is_success:
        raise InternalError(f"{answer.request.url.path} was answered with {answer.status_code}: {answer.text[:300]}")
    body: dict[str, Any] = answer.json()
    return body


@dataclass(slots=True, kw_only=True)
class Followed:
    """Events of one stream."""

    job_id: str
    events: list[tuple[int, str]] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    """From the time that an event carries to its arrival here; of events that came while the stream was open."""


async def follow_all(
    client: httpx2.AsyncClient, job_ids: Sequence[str], *, streams: int, all_open: Callable[[], None]
) -> list[Followed]:
    """Every event of all jobs, with `streams` streams open at a time; `all_open` is called when they first are.

    A stream takes every `streams`th job, so that the jobs which are worked on are followed while they are.
    """
    opened = 0

    def note_open() -> None:
        nonlocal opened
        opened += 1
        if opened == min(streams, len(job_ids)):
            all_open()

    async def keep_open(place: int) -> list[Followed]:
        return [await follow(client, job_id, note_open) for job_id in job_ids[place::streams]]

    kept = await asyncio.gather(*(keep_open(place) for place in range(streams)))
    return [followed for each in kept for followed in each]


async def follow(client: httpx2.AsyncClient, job_id: str, note_open: Callable[[], None]) -> Followed:
    """One stream to its end, without resuming: what it does not bring is missing."""
    followed = Followed(job_id=job_id)
    seq, kind = 0, ""
    async with client.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        if not answer.is_success:
            raise InternalError(f"The events of {job_id} were answered with {answer.status_code}.")
        note_open()
        opened = time.time()
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                seq = int(value)
            elif name == "event":
                kind = value
            elif name == "data":
                followed.events.append((seq, kind))
                if (at := float(json.loads(value)["at"])) > opened:
                    followed.delays_s.append(time.time() - at)
    return followed


def stored_events(database: Path) -> dict[str, list[tuple[int, str]]]:
    """The events that the streams must have brought: each job's history, read from the file itself."""
    found: dict[str, list[tuple[int, str]]] = {}
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        for job_id, seq, kind in connection.execute("SELECT job_id, seq, kind FROM events ORDER BY job_id, seq"):
            found.setdefault(f"job_{job_id}", []).append((seq, kind))
    finally:
        connection.close()
    return found


def count_faults(followed: Sequence[Followed], stored: dict[str, list[tuple[int, str]]]) -> dict[str, int]:
    """How far the streams are from what was stored; all zero if each brought every event once and in order."""
    faults = {"missing": 0, "repeated": 0, "streams_not_as_stored": 0}
    for stream in followed:
        truth = stored.get(stream.job_id, [])
        faults["missing"] += len(set(truth) - set(stream.events))
        faults["repeated"] += len(stream.events) - len(set(stream.events))
        faults["streams_not_as_stored"] += stream.events != truth
    return faults


async def upload(client: httpx2.AsyncClient, size_bytes: int) -> tuple[dict[str, Any], float]:
    """A plain text of that size, made while it is sent: the file object, and when the last byte went out."""
    boundary = "longfold-benchmark"
    fields = (("purpose", "", "user_data"), ("file", '; filename="long.txt"', None))
    sent = 0.0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for name, more, value in fields:
            yield f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
            if value is not None:
                yield f"{value}\r\n".encode()
        left = size_bytes
        for number in count():
            piece = (f"Page {number}. ".encode() + _PAGE)[:left]
            left -= len(piece)
            yield piece
            if not left:
                break
        yield f"\r\n--{boundary}--\r\n".encode()
        sent = time.monotonic()

    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    answer = await client.post("/v1/files", content=body(), headers=headers)
    return check(answer), sent
