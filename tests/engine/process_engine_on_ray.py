"""A replica as a GPU has it, its engine in a process of its own, on Ray and on the processor.

One start that fails, one that does not, and the engine's death under a call.

python -m tests.engine.process_engine_on_ray MODEL_FOLDER FOLDER

A process of its own, because a process has one Ray. Prints a line of JSON per step.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import psutil

from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from pipeline.errors import LongfoldError
from pipeline.llm.model import Call, Completion, EncodedPrompt, Sampling, Stage
from serving.cluster import ray_cluster
from serving.models.profile import load_profile
from serving.replicas.placement import Placement, place_vllm


def report(step: str, **figures: object) -> None:
    print(json.dumps({"step": step, **figures}), flush=True)


def place(model: Path, kv_cache_bytes: int) -> Placement:
    placed = place_vllm(load_profile(model, context_tokens=2048), kv_cache_bytes=kv_cache_bytes, devices=[])
    return replace(
        placed,
        spec=replace(placed.spec, options={**placed.spec.options, "own_process": True}),
        environment={**placed.environment, "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn"},
    )


async def lose_the_engine(dispatcher: RayTaskDispatcher) -> None:
    prompt = EncodedPrompt(token_ids=array("I", range(1, 9)), shared_prefix_tokens=0)
    call = Call(prompt=prompt, sampling=Sampling(max_output_tokens=1500), stage=Stage.MAP)
    waiting = asyncio.create_task(dispatcher.complete(call))
    await asyncio.sleep(3)
    engines = [one for one in psutil.process_iter(["name"]) if "EngineCore" in (one.info["name"] or "")]
    for engine in engines:
        engine.kill()
    outcome = await waiting
    report("engine killed", engines=len(engines), completed=isinstance(outcome, Completion))


def main() -> None:
    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        ray_cluster.start(place(model, 1 << 20), folder=folder / "a", report=lambda _: None)
    except LongfoldError as error:
        kept = ray_cluster.keep_logs(folder / "a", folder / "kept")
        report("not started", error=type(error).__name__, message=str(error), logs=len(list(kept.iterdir())) > 0)
    started = ray_cluster.start(place(model, 1 << 29), folder=folder / "b", report=lambda _: None)
    try:
        report("started", replicas=started.replicas)
        asyncio.run(lose_the_engine(started.dispatcher()))
    finally:
        started.stop()


if __name__ == "__main__":
    main()
