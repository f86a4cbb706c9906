"""SIMULATED: one driver in front of 1 to 1,000 scripted replicas. Where does the driver become the limit?

Why simulated: a thousand replicas of the real deployment are a thousand processes, and the Ray tasks before them two
thousand more, which no machine at hand holds. What can be had is the driver's own side. So the real strategy, prompts,
dispatcher and router run as they are, on a clock of processor time that skips waiting (`systems/simulated_clock.py`);
only replicas and Ray tasks are scripted (`systems/simulated_replicas.py`). A replica's speed is that of a results file
of `saturation`, and what Ray takes of the driver's thread is measured first, with a real cluster
(`systems/ray_share.py`; the one row that is not simulated). Not in it: Ray's own scheduler, the network, and workers
starting.

Loads: `calls` are map calls that keep all replicas busy, of the dispatcher alone; `documents` whole runs of `mapreduce`
on so many documents at once that each replica gets some chunks; `document` one run on a single long document.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.data.items import BenchDocument
from benchmarks.data.question_set import make_documents
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row, read_results, scored
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.scale import TAIL_SHARE, draw_scale, report_scale
from benchmarks.systems.simulated_clock import SimulatedLoop, simulate
from pipeline.chunks.split import encode_sentences, split_document
from pipeline.documents.document import Document
from pipeline.errors import CallerError
from pipeline.front_door import ask
from pipeline.llm.complete import at_once
from pipeline.llm.model import Dispatcher
from pipeline.llm.scripted import seeded_script
from pipeline.run.request import Request
from pipeline.run.strategy import Resources

if TYPE_CHECKING:  # importing Ray takes a second
    from benchmarks.systems.simulated_replicas import RayShare, SimulatedReplicas

RESULTS = Path(__file__).parents[1] / "results"
LOADS = ("calls", "documents", "document")
SPEEDS = (1, 30)
"""Times the measured speed of a replica. 30 is an assumption: a GPU's, say."""
CALLS_PER_REPLICA = 40
"""More than the two batches that are on their way, so that the driver has to follow up."""
CHUNKS_PER_REPLICA = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    replicas: tuple[int, ...]
    document_tokens: int
    """Of each of many."""
    long_tokens: int
    """Of the single one."""
    ray_calls: int


FULL = Sizes(replicas=(1, 3, 10, 30, 100, 300, 1_000), document_tokens=128_000, long_tokens=1_280_000, ray_calls=2_048)
QUICK = Sizes(replicas=(1, 10, 100), document_tokens=16_000, long_tokens=64_000, ray_calls=256)
WARM_UP = Sizes(replicas=(), document_tokens=0, long_tokens=4_000, ray_calls=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of one replica, and the file it is from."""

    tokens_per_s: float
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One simulation."""

    load: str
    speed: int
    replicas: int

    @property
    def key(self) -> str:
        return f"{self.load}/{self.speed}/{self.replicas}"


async def run(bench: Bench) -> None:
    sizes = QUICK if bench.options.quick else FULL
    speed = find_speed(bench)
    bench.say(f"a replica computes {speed.tokens_per_s:,.0f} tokens per second ({speed.file})")
    ray = await _ray_share(bench, sizes.ray_calls)
    # Modules are imported and templates encoded once in a process.
    await _stoppable(bench, Point(load="document", speed=1, replicas=1), WARM_UP, speed, ray)
    points = [Point(load=load, speed=s, replicas=n) for load in LOADS for s in SPEEDS for n in sizes.replicas]
    points = [point for point in points if not bench.results.has(point.key)]
    with show_progress(len(points), "simulations") as advance:
        for point in points:
            row = await _stoppable(bench, point, sizes, speed, ray)
            bench.results.add(point.key, simulated=True, speed_from=speed.file, **row)
            bench.say(
                f"simulated: {point.key}: {row['calls_per_s']:,.1f} calls/s, replicas idle {row['idle_share']:.0%}, "
                f"driver busy {row['driver_share']:.0%}"
            )
            advance()


def find_speed(bench: Bench) -> Speed:
    """From the newest results of `saturation` with this model, or the file named by `--set data=`."""
    named = bench.options.data
    if named and not Path(named).is_file():
        raise CallerError(f"--set data={named}: there is no such file; name one of the suite saturation.")
    files = [Path(named)] if named else sorted(RESULTS.glob("saturation-*.jsonl"), reverse=True)
    for path in files:
        header, rows = read_results(path)
        speeds = [row["tokens_per_s"] for row in scored(rows) if row.get("side") == "ray"]
        if speeds and (named or bench.model.opened is None or header["model"]["name"] == bench.model.name):
            return Speed(tokens_per_s=median(speeds), file=path.name)
    raise CallerError(
        f"No speed of {bench.model.name} was measured; run `python -m benchmarks run saturation --model "
        f"{bench.model.name}` first, or name a results file with --set data=FILE."
    )


async def _ray_share(bench: Bench, calls: int) -> RayShare:
    from benchmarks.systems.ray_share import measure_ray
    from benchmarks.systems.simulated_replicas import RayShare

    if not bench.results.has("ray"):
        measured = await measure_ray(bench.model.settings, bench.say, calls)
        bench.results.add(
            "ray",
            simulated=False,
            calls=calls,
            calls_per_s=round(measured.calls_per_s, 1),
            batched_ms_per_call=round(1e3 * measured.batched_s, 4),
            single_ms_per_call=round(1e3 * measured.single_s, 4),
            ray_ms_per_task=round(1e3 * measured.share.task_s, 4),
            ray_ms_per_call=round(1e3 * measured.share.call_s, 4),
        )
    [row] = [row for row in read_results(bench.results.path)[1] if row["key"] == "ray" and "unscored" not in row]
    return RayShare(task_s=row["ray_ms_per_task"] / 1e3, call_s=row["ray_ms_per_call"] / 1e3)


async def _stoppable(bench: Bench, point: Point, sizes: Sizes, speed: Speed, ray: RayShare) -> Row:
    """In a thread, since this one has a loop that runs; it ends when this task is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(simulate_point, bench, point, sizes, speed, ray, stop)
    finally:
        stop.set()


def simulate_point(
    bench: Bench, point: Point, sizes: Sizes, speed: Speed, ray: RayShare, stop: threading.Event | None = None
) -> Row:
    """One simulation: its figures."""
    from benchmarks.systems.simulated_replicas import SimulatedDispatcher, SimulatedReplicas

    documents = _documents(bench, point, sizes)
    split_document.cache_clear()
    encode_sentences.cache_clear()
    tokens_per_s = speed.tokens_per_s * point.speed
    made: list[SimulatedReplicas] = []

    def work(loop: SimulatedLoop) -> Coroutine[Any, Any, None]:
        replicas = SimulatedReplicas(loop, point.replicas, tokens_per_s, seeded_script())
        made.append(replicas)
        dispatcher = SimulatedDispatcher(loop, replicas, point.replicas, ray)
        if documents:
            return _ask_all(documents, bench.model.resources(dispatcher))
        return _complete_all(dispatcher, CALLS_PER_REPLICA * point.replicas)

    took = simulate(work, stop)
    [replicas] = made
    ended = np.asarray(replicas.ended_s) - took.started_s
    return {
        "load": point.load,
        "replicas": point.replicas,
        "speed": point.speed,
        "replica_tokens_per_s": round(tokens_per_s, 1),
        "documents": len(documents),
        "calls": len(ended),
        "simulated_s": round(took.seconds, 3),
        "calls_per_s": round(len(ended) / took.seconds, 2),
        "idle_share": round(1 - replicas.busy_s / (point.replicas * took.seconds), 4),
        "tail_s": round(float(took.seconds - np.quantile(ended, TAIL_SHARE)), 3),
        "driver_share": round(took.worked_s / took.seconds, 4),
        "driver_ms_per_call": round(1e3 * took.worked_s / len(ended), 4),
        "router_ms_per_call": round(1e3 * replicas.router_s / len(ended), 4),
    }


def documents_for(replicas: int, document_tokens: int, chunk_tokens: int) -> int:
    """So many that each replica gets `CHUNKS_PER_REPLICA`."""
    return max(1, -(-replicas * CHUNKS_PER_REPLICA * chunk_tokens // document_tokens))


def _documents(bench: Bench, point: Point, sizes: Sizes) -> list[BenchDocument]:
    """Made outside the clock; none for `calls`."""
    if point.load == "calls":
        return []
    count, tokens = 1, sizes.long_tokens
    if point.load == "documents":
        tokens = sizes.document_tokens
        count = documents_for(point.replicas, tokens, bench.model.describe()["chunk_tokens"])
    return make_documents(bench.options.seed, count, tokens, 1, ("en",), ("lookup",))


async def _ask_all(documents: list[BenchDocument], resources: Resources) -> None:
    async with asyncio.TaskGroup() as group:
        for made in documents:
            request = Request(question=made.items[0].question, strategy="mapreduce")
            group.create_task(ask(Document.from_text(made.text, made.name), request, resources))


async def _complete_all(dispatcher: Dispatcher, count: int) -> None:
    from benchmarks.systems.ray_share import map_calls

    await at_once(map(dispatcher.complete, map_calls(count)))


SUITE = Suite(
    purpose="SIMULATED: one driver before 1 to 1,000 scripted replicas; where it becomes the limit",
    run=run,
    report=report_scale,
    picture=draw_scale,
    quick=Options(model="", quick=True),
)
