"""How much of the driver's own thread Ray takes: of each task, and of each call that a task carries.

Measured: the real `RayTaskDispatcher` on a real cluster with one scripted replica, which answers at once. What the
dispatcher itself takes is known from the same calls on the simulated clock, and taken away.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.systems.simulated_clock import SimulatedLoop, simulate
from benchmarks.systems.simulated_replicas import RayShare, SimulatedDispatcher, SimulatedReplicas
from pipeline.dispatch.ray_tasks import CALLS_PER_REPLICA
from pipeline.errors import InternalError
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, Dispatcher, EncodedPrompt, Sampling, Stage
from pipeline.llm.scripted import seeded_script
from serving.session import Report
from serving.settings import Settings

PROMPT_TOKENS, OUTPUT_TOKENS = 1_500, 64
WARM_UP_CALLS = 64
SINGLE = 1
"""Calls per replica: a task for each."""
_AT_ONCE = 1e9
"""Tokens per second."""
_NO_RAY = RayShare(task_s=0.0, call_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayMeasurement:
    """Seconds of the driver's thread per call, dispatcher and Ray together, and what Ray's part comes to."""

    calls_per_s: float
    batched_s: float
    single_s: float
    share: RayShare


def map_calls(count: int) -> list[Call]:
    """On as many chunks, all of one length."""
    prompt = EncodedPrompt(token_ids=array("I", range(PROMPT_TOKENS)), shared_prefix_tokens=0)
    sampling = Sampling(max_output_tokens=OUTPUT_TOKENS)
    return [
        Call(prompt=prompt, sampling=sampling, stage=Stage.MAP, chunk_index=number, affinity=number)
        for number in range(count)
    ]


async def measure_ray(settings: Settings, report: Report, calls: int) -> RayMeasurement:
    """In tasks of the usual size, and a sixteenth of the calls each in a task of its own."""
    many, few = map_calls(calls), map_calls(max(1, calls // 16))
    with _scripted_cluster(settings, report) as dispatcher:
        await _time(dispatcher(CALLS_PER_REPLICA), map_calls(WARM_UP_CALLS))
        batched = await _time(dispatcher(CALLS_PER_REPLICA), many)
        single = await _time(dispatcher(SINGLE), few)
    return RayMeasurement(
        calls_per_s=len(many) / batched.seconds,
        batched_s=batched.thread_s,
        single_s=single.thread_s,
        share=split_share(
            batched_s=batched.thread_s - await asyncio.to_thread(_without_ray_s, many, CALLS_PER_REPLICA),
            single_s=single.thread_s - await asyncio.to_thread(_without_ray_s, few, SINGLE),
            calls_per_task=CALLS_PER_REPLICA,
        ),
    )


def split_share(*, batched_s: float, single_s: float, calls_per_task: int) -> RayShare:
    """From seconds per call, in tasks of several calls and in tasks of one, to those of a task and those of a call."""
    task_s = max(0.0, (single_s - batched_s) * calls_per_task / (calls_per_task - 1))
    return RayShare(task_s=task_s, call_s=max(0.0, single_s - task_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timing:
    seconds: float
    thread_s: float
    """Processor time of this thread, per call."""


async def _time(dispatcher: Dispatcher, calls: Sequence[Call]) -> _Timing:
    started, worked_s = time.monotonic(), time.thread_time()
    await _complete(dispatcher, calls)
    return _Timing(seconds=time.monotonic() - started, thread_s=(time.thread_time() - worked_s) / len(calls))


async def _complete(dispatcher: Dispatcher, calls: Sequence[Call]) -> None:
    for outcome in await at_once(map(dispatcher.complete, calls)):
        if isinstance(outcome, CallFailed):
            raise InternalError(f"A call to a scripted replica failed: {outcome.message}")


def _without_ray_s(calls: Sequence[Call], calls_per_replica: int) -> float:
    """Seconds per call, on the simulated clock."""

    def work(loop: SimulatedLoop) -> Coroutine[Any, Any, None]:
        replicas = SimulatedReplicas(loop, 1, _AT_ONCE, seeded_script())
        return _complete(SimulatedDispatcher(loop, replicas, 1, _NO_RAY, calls_per_replica=calls_per_replica), calls)

    return simulate(work).worked_s / len(calls)


@contextmanager
def _scripted_cluster(settings: Settings, report: Report) -> Iterator[Callable[[int], Dispatcher]]:
    from serving.cluster import ray_cluster
    from serving.replicas.engine import EngineSpec
    from serving.replicas.placement import Placement, common_environment

    spec = EngineSpec(engine="scripted", options={"script": "pipeline.llm.scripted:seeded_script"})
    placement = Placement(spec=spec, environment=common_environment())
    with tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder:
        running = ray_cluster.start(placement, folder=Path(folder), report=report, auth=settings.ray_auth)
        try:
            yield lambda calls: running.dispatcher(calls_per_replica=calls)
        finally:
            running.stop()


def main() -> None:
    """Print it: python -m benchmarks.systems.ray_share [CALLS]"""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    measured = asyncio.run(measure_ray(Settings(), print, calls))
    print(
        f"{measured.calls_per_s:,.0f} calls/s; of the driver's thread {1e3 * measured.batched_s:.3f} ms a call in "
        f"batches, {1e3 * measured.single_s:.3f} ms alone"
    )


if __name__ == "__main__":
    main()
