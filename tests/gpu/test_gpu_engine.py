"""The deployment on GPUs: one `AsyncLLM` per GPU, reached as on a CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pipeline.documents.sample import bundled_document
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.front_door import ask
from pipeline.llm.budget import TokenBudget
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from serving.cluster import ray_cluster
from serving.machine import devices
from serving.models.profile import load_profile
from serving.models.pull import find_model
from serving.replicas.placement import place_vllm
from serving.settings import load_settings


async def test_a_whole_document_is_read_on_every_gpu() -> None:
    path = find_model("smollm2-135m", cache_dir=load_settings().cache_dir)
    if path is None:
        pytest.skip("smollm2-135m is not on this machine; `make test` brings it")
    document = bundled_document()
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        running = ray_cluster.start(place_vllm(load_profile(path)), folder=Path(folder), report=lambda _: None)
        try:
            assert running.replicas == len(devices())
            resources = Resources(
                tokenizer=Tokenizer.from_directory(path),
                budget=TokenBudget(8192),
                dispatcher=running.dispatcher(),
                chunk_tokens=1500,
                gate=GateSettings(enabled=True),
                calibration=Calibration(keep_probability=0.0),
            )
            request = Request(question="What does a failing assert statement raise?", strategy="mapreduce")
            answer = await ask(document, request, resources)
        finally:
            running.stop()
    assert answer.coverage.failed_chunks == ()
    assert all(e.span and e.quote == document.slice(e.span) for e in answer.evidence)
