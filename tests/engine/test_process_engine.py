"""The engine of GPUs, `AsyncLLM` in a process of its own, on the processor: it completes, streams, aborts and dies."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tokenizers import Tokenizer

from pipeline.errors import LongfoldError, ReplicaUnavailable
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, EncodedPrompt, Sampling, Stage
from serving.models.profile import load_profile
from serving.replicas.placement import place_vllm
from serving.replicas.vllm_engine import VllmModel, VllmSettings


@pytest.fixture(scope="module")
def settings(model_path: Path) -> Iterator[VllmSettings]:
    """Of an engine as a GPU's replica has it, but on the processor."""
    placement = place_vllm(load_profile(model_path, context_tokens=2048), kv_cache_bytes=1 << 29, devices=[])
    before = dict(os.environ)
    os.environ.update({name: value for name, value in placement.environment.items() if name != "LD_PRELOAD"})
    os.environ["VLLM_WORKER_MULTIPROCESSING_METHOD"] = "spawn"
    yield VllmSettings(**placement.spec.options | {"own_process": True})
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def model(settings: VllmSettings) -> Iterator[VllmModel]:
    started = VllmModel(settings)
    started.start()
    yield started
    started.stop()


def make_call(settings: VllmSettings, text: str, **sampling: object) -> Call:
    ids = Tokenizer.from_file(f"{settings.model_path}/tokenizer.json").encode(text, add_special_tokens=False).ids
    return Call(
        prompt=EncodedPrompt(token_ids=array("I", ids), shared_prefix_tokens=0),
        sampling=Sampling(**({"max_output_tokens": 16} | sampling)),  # type: ignore[arg-type]
        stage=Stage.MAP,
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_it_completes_streams_aborts_and_tells_of_its_own_death(settings: VllmSettings, model: VllmModel) -> None:
    # Completes: text, one constrained token with its probabilities, and what it is told while it writes.
    told: list[str] = []
    story = make_call(settings, "Once upon a time", max_output_tokens=40)
    choice = make_call(settings, "Is the sky blue? Answer:", max_output_tokens=1, choices=(" Yes", " No"))
    written, chosen = await at_once([model.complete(replace(story, on_text=told.append)), model.complete(choice)])
    assert written.usage.output_tokens == 40
    assert len(told) > 1
    assert all(written.text.startswith(text) for text in told)
    assert len(chosen.choice_logprobs) == 2
    assert (await model.complete(story)).usage.cached_tokens >= 0
    # Aborts: a cancelled call leaves the engine.
    endless = asyncio.create_task(model.complete(make_call(settings, "Write on:", max_output_tokens=1500)))
    while not model.progress().running:
        await asyncio.sleep(0.05)
    endless.cancel()
    await asyncio.wait([endless])
    assert model.progress().running == 0
    # Refuses a call for its own fault, and lives on.
    with pytest.raises(LongfoldError):
        await model.complete(make_call(settings, "Yes?", max_output_tokens=1, choices=("Yes indeed", " No")))
    assert model.dead_reason() is None
    # Dies: calls fail as a lost replica's, and the reason is there for the health check.
    waiting = asyncio.create_task(model.complete(make_call(settings, "Write on:", max_output_tokens=1500)))
    await asyncio.sleep(1)
    [core] = [one for one in psutil.Process().children(recursive=True) if "EngineCore" in " ".join(one.cmdline())]
    core.kill()
    with pytest.raises(ReplicaUnavailable):
        await asyncio.wait_for(waiting, 60)
    assert model.dead_reason()


def test_a_start_that_fails_says_what_the_engine_said(
    settings: VllmSettings, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its own exception says only that the engine's process did not start."""
    small = replace(settings, kv_cache_bytes=1 << 20)
    with pytest.raises(ReplicaUnavailable) as raised:
        VllmModel(small).start()
    assert "Engine core initialization failed" not in str(raised.value), capfd.readouterr().err[-2000:]
    assert "KV cache" in str(raised.value)


def test_on_ray_a_failed_start_says_why_and_a_dead_engine_is_replaced_under_its_call(model_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:  # Ray puts sockets there: a short path
        ran = subprocess.run(
            [sys.executable, "-m", "tests.engine.process_engine_on_ray", str(model_path), folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
            cwd=Path(__file__).parents[2],
        )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    steps = {step.pop("step"): step for step in map(json.loads, lines)}
    assert set(steps) == {"not started", "started", "engine killed"}, ran.stderr[-3000:]
    assert (steps["not started"]["error"], steps["not started"]["logs"]) == ("OutOfMemory", True)
    assert "KV cache is needed" in steps["not started"]["message"]
    assert steps["engine killed"] == {"engines": 1, "completed": True}
