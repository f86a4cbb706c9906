"""What the gateway costs: time per request, many jobs and event streams at once, memory during an upload.

Everything between a client and a model is the real thing, over HTTP and in other processes: `longfold serve`, its
database on the disk, its runner. The model is scripted and answers at once, and no Ray is between, so the figures are
about the gateway, the database and the runner, and say nothing about a model. Times include the client, which shares
the machine; the gateway's own processor time does not.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.process_watch import cpu_meter, find_child, watch_memory
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.gateway import draw_gateway, report_gateway
from benchmarks.systems.gateway import GatewayProcess
from benchmarks.systems.scripted_service import MODEL_NAME, release, scripted_service

if TYPE_CHECKING:  # the client is a library that only development installs
    import httpx2

    from benchmarks.systems.gateway_client import Send, Timings

QUESTION = "Who was the harbour master?"
STORY = "\n\n".join(
    f"Section {n}. " + "The harbour was quiet that morning and the boats lay still. " * 8 for n in range(20)
)
"""About 10,000 characters, which are as many tokens: more than fits one call, so that jobs have chunks."""
WRITES = 200
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of one pass."""

    requests: int
    """Of each kind that only reads, for each number of clients."""
    chats: int
    jobs: int
    streams: int
    upload_bytes: int
    clients: tuple[int, ...] = (1, 16)


FULL = Sizes(requests=2_000, chats=200, jobs=1_000, streams=200, upload_bytes=200_000_000)
QUICK = Sizes(requests=50, chats=4, jobs=10, streams=5, upload_bytes=5_000_000)


async def run(bench: Bench) -> None:
    """Each measurement of a pass has a service of its own, so that none finds what another has left."""
    from benchmarks.systems.gateway_client import open_client

    sizes = QUICK if bench.options.quick else FULL
    parts = {"disk": _measure_requests, "queue": _measure_queue, "upload": _measure_upload}
    measured = list(product(range(bench.options.repeats), parts.items()))
    with show_progress(len(measured), "parts") as advance:
        for number, (part, measure) in measured:
            if not bench.results.has(f"{part}/{number}"):
                with (
                    tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder,
                    scripted_service(Path(folder), hold=part == "queue") as service,
                ):
                    async with open_client(service.url) as client:
                        await measure(bench, service, client, sizes, number)
            advance()


def _measure_disk(bench: Bench, folder: Path, number: int) -> None:
    """What a write to the disk takes here: every accepted job waits for some of them."""
    seconds = []
    with (folder / "written").open("wb", buffering=0) as file:
        for _ in range(WRITES):
            started = time.perf_counter()
            file.write(b"\0" * 4096)
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - started)
    _add(bench, f"disk/{number}", part="disk", count=WRITES, **_percentiles(seconds))


async def _measure_requests(
    bench: Bench, service: GatewayProcess, client: httpx2.AsyncClient, sizes: Sizes, number: int
) -> None:
    """Of a service with nothing else to do; the row of the disk comes last."""
    from benchmarks.systems.gateway_client import check, until_ready

    await until_ready(client)
    made = check(await client.post("/v1/jobs", json={"question": QUESTION, "text": STORY, "strategy": "mapreduce"}))
    path = f"/v1/jobs/{made['id']}"
    while check(await client.get(path))["state"] in ("queued", "running"):  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.1)

    def chat(n: int) -> Any:
        messages = [{"role": "user", "content": f"Question {n}, asked once {time.monotonic_ns()}"}]
        return client.post("/v1/chat/completions", json={"model": MODEL_NAME, "messages": messages})

    kinds: dict[str, tuple[Send, int]] = {
        "GET /healthz": (lambda _: client.get("/healthz"), sizes.requests),
        "GET /v1/models": (lambda _: client.get("/v1/models"), sizes.requests),
        "GET /v1/jobs/{id}": (lambda _: client.get(path), sizes.requests),
        "POST /v1/chat/completions": (chat, sizes.chats),
    }
    for kind, (send, requests) in kinds.items():
        await asyncio.gather(*(send(-1) for _ in range(4)))
        for clients in sizes.clients:
            await _measure_kind(bench, service, client, kind, send, clients=clients, requests=requests, number=number)
    _measure_disk(bench, service.folder, number)


async def _measure_kind(
    bench: Bench,
    service: GatewayProcess,
    client: httpx2.AsyncClient,
    kind: str,
    send: Send,
    *,
    clients: int,
    requests: int,
    number: int,
) -> None:
    from benchmarks.systems.gateway_client import time_requests

    used = cpu_meter(service.pid)
    timings: Timings = await time_requests(client, send, clients=clients, requests=requests)
    gateway_ms = 1e3 * used() / requests
    percentiles = _percentiles(timings.seconds)
    _add(
        bench,
        f"request/{kind}/{clients}/{number}",
        part="request",
        request=kind,
        clients=clients,
        count=requests,
        **percentiles,
        per_s=round(requests / timings.wall_s, 1),
        gateway_cpu_ms=round(gateway_ms, 3),
    )
    bench.say(
        f"{kind}, {clients} at once: p50 {percentiles['p50_ms']} ms, p99 {percentiles['p99_ms']} ms, "
        f"{requests / timings.wall_s:,.0f} per second"
    )


async def _measure_queue(
    bench: Bench, service: GatewayProcess, client: httpx2.AsyncClient, sizes: Sizes, number: int
) -> None:
    """Jobs are submitted (which is timed as a kind of request), then followed while the runner works through them."""
    from benchmarks.systems.gateway_client import check, count_faults, follow_all, stored_events

    files = {"file": ("story.txt", STORY.encode(), "text/plain")}
    document = check(await client.post("/v1/files", files=files))["id"]
    job_ids: list[str] = []

    async def submit(n: int) -> httpx2.Response:
        question = f"{QUESTION} ({len(job_ids)}, {n})"
        answer = await client.post(
            "/v1/jobs", json={"question": question, "file_ids": [document], "strategy": "mapreduce"}
        )
        job_ids.append(check(answer)["id"])
        return answer

    for clients, jobs in zip(sizes.clients, (sizes.jobs // 5, sizes.jobs - sizes.jobs // 5), strict=True):
        kind = "POST /v1/jobs"
        await _measure_kind(bench, service, client, kind, submit, clients=clients, requests=jobs, number=number)
    job_ids.sort()  # their order in the queue
    queued_s, began = 0.0, time.monotonic()
    runner_pid = find_child(service.pid, "--runner")
    meters = {name: cpu_meter(pid) for name, pid in _processes(service.pid, runner_pid).items()}

    def begin() -> None:
        nonlocal queued_s, began
        queued_s, began = time.monotonic() - began, time.monotonic()
        release(service)

    with watch_memory(service.pid) as memory:
        followed = await follow_all(client, job_ids, streams=sizes.streams, all_open=begin)
        wall_s = time.monotonic() - began
        used = {name: round(meter(), 2) for name, meter in meters.items()}
    stored = stored_events(service.folder / "state" / "longfold.sqlite")
    ended = [stored[job_id][-1][1] for job_id in job_ids]
    own = [rss for _, rss, _ in memory.samples]
    _add(
        bench,
        f"queue/{number}",
        part="queue",
        jobs=len(job_ids),
        streams=sizes.streams,
        completed=ended.count("job.completed"),
        events=sum(len(stored[job_id]) for job_id in job_ids),
        received=sum(len(stream.events) for stream in followed),
        **count_faults(followed, stored),
        opening_s=round(queued_s, 2),
        seconds=round(wall_s, 2),
        **{f"cpu_s_{name}": seconds for name, seconds in used.items()},
        rss_before_mib=_mib(own[0]),
        rss_max_mib=_mib(max(own)),
        rss_after_mib=_mib(own[-1]),
        **{f"delay_{name}": value for name, value in _percentiles([d for f in followed for d in f.delays_s]).items()},
    )
    bench.say(
        f"{len(job_ids)} jobs with {sizes.streams} streams open: {wall_s:.1f} s, {count_faults(followed, stored)}"
    )


def _processes(gateway_pid: int, runner_pid: int) -> dict[str, int]:
    return {"gateway": gateway_pid, "runner": runner_pid, "clients": os.getpid()}


async def _measure_upload(
    bench: Bench, service: GatewayProcess, client: httpx2.AsyncClient, sizes: Sizes, number: int
) -> None:
    """A small upload first: what is imported and allocated once is not the large one's."""
    from benchmarks.systems.gateway_client import upload

    await upload(client, _MIB)
    await asyncio.sleep(0.5)
    used = cpu_meter(service.pid)
    with watch_memory(service.pid, "serving.storage.parse_file") as memory:
        await asyncio.sleep(0.5)
        began = time.monotonic()
        stored, sent = await upload(client, sizes.upload_bytes)
        ended = time.monotonic()
        await asyncio.sleep(0.5)
    before = [rss for at, rss, _ in memory.samples if at <= began][-1]
    receiving = [rss for at, rss, _ in memory.samples if began < at <= sent]
    storing = [rss for at, rss, _ in memory.samples if sent < at <= ended]
    _add(
        bench,
        f"upload/{number}",
        part="upload",
        bytes=stored["bytes"],
        characters=stored["longfold"]["characters"],
        samples=len(memory.samples),
        sending_s=round(sent - began, 2),
        seconds=round(ended - began, 2),
        cpu_s_gateway=round(used(), 2),
        rss_before_mib=_mib(before),
        growth_receiving_mib=_mib(max(receiving, default=before) - before),
        growth_storing_mib=_mib(max(storing, default=before) - before),
        growth_after_mib=_mib(memory.samples[-1][1] - before),
        parser_max_mib=_mib(memory.max_of_children),
    )
    bench.say(f"upload of {stored['bytes'] / 1e6:.0f} MB: {ended - began:.1f} s")


def _add(bench: Bench, key: str, **fields: Any) -> None:
    """A pass that is resumed measures again what leads up to what was missing; the first figures stay."""
    if not bench.results.has(key):
        bench.results.add(key, **fields)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    p50, p99 = np.quantile(np.asarray(seconds), (0.5, 0.99))
    return {"p50_ms": round(1e3 * float(p50), 2), "p99_ms": round(1e3 * float(p99), 2)}


def _mib(size_bytes: int) -> float:
    return round(size_bytes / _MIB, 1)


SUITE = Suite(
    purpose="time per request, 1,000 jobs with 200 event streams, memory during a 200 MB upload (scripted model)",
    run=run,
    report=report_gateway,
    picture=draw_gateway,
    scripted=True,
    quick=Options(model="", quick=True),
)
