"""Real vLLM with the small embedded model, through the real deployment, on one local cluster for all tests here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from serving.cluster import ray_cluster as cluster
from serving.models.profile import load_profile
from serving.models.pull import find_model
from serving.replicas.placement import place_vllm
from serving.settings import load_settings


@dataclass(frozen=True)
class Served:
    cluster: cluster.Cluster
    tokenizer: Tokenizer
    model_path: Path

    def dispatcher(self) -> RayTaskDispatcher:
        return self.cluster.dispatcher()

    def progress(self) -> dict[str, float]:
        (status,) = cluster.replica_statuses()
        return dict(status.stats["progress"])


@pytest.fixture(scope="session")
def model_path() -> Path:
    """`LONGFOLD_TEST_MODEL`, or the embedded model where `longfold models pull` has put it."""
    given = os.environ.get("LONGFOLD_TEST_MODEL")
    found = Path(given) if given else find_model("smollm2-135m", cache_dir=load_settings().cache_dir)
    if found is None:
        pytest.skip("smollm2-135m is not on this machine; `make test` brings it")
    return found


@pytest.fixture(scope="package")  # a process has one Ray: it ends before the next package's begins
def served(model_path: Path) -> Iterator[Served]:
    placement = place_vllm(load_profile(model_path, context_tokens=4096), kv_cache_bytes=1 << 30)
    with tempfile.TemporaryDirectory(prefix="lf-") as name:
        started = cluster.start(placement, folder=Path(name), report=lambda _: None)
        try:
            yield Served(started, Tokenizer.from_file(str(model_path / "tokenizer.json")), model_path)
        finally:
            started.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "engine" in Path(item.fspath).parts:
            item.add_marker("engine")
