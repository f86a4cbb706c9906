"""One real local cluster for all tests here: Ray, Serve, two replicas of a scripted model in the real deployment."""

from __future__ import annotations

import asyncio
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from pipeline.dispatch.retry import RetryPolicy
from pipeline.llm.model import Call, EncodedPrompt, Sampling, Stage
from serving.cluster import ray_cluster as cluster
from serving.replicas.engine import EngineSpec
from serving.replicas.placement import Placement, common_environment

STALL_S = 2.0


def scripted_placement(folder: Path, *, replicas: int = 1, script: str = "obedient") -> Placement:
    return Placement(
        spec=EngineSpec(
            engine="scripted",
            options={"script": f"tests.integration.scripts:{script}", "folder": str(folder)},
            stall_s=STALL_S,
        ),
        replicas=replicas,
        num_cpus=0.1,
        environment=common_environment(),
        health_period_s=0.5,
        health_timeout_s=30.0,
    )


def make_call(number: int, *, stage: Stage = Stage.MAP, affinity: int | None = None) -> Call:
    prompt = EncodedPrompt(token_ids=array("I", [number, 1, 2, 3]), shared_prefix_tokens=0)
    return Call(prompt=prompt, sampling=Sampling(max_output_tokens=4), stage=stage, affinity=affinity)


@dataclass(frozen=True)
class Rig:
    cluster: cluster.Cluster
    folder: Path

    def dispatcher(self, calls_per_replica: int = 32) -> RayTaskDispatcher:
        retry = RetryPolicy(first_wait_s=0.2, longest_wait_s=2.0)
        return self.cluster.dispatcher(calls_per_replica=calls_per_replica, retry=retry)

    def begun(self) -> list[tuple[int, int, str]]:
        """(number, pid, affinity) of every call that a replica began since the last `forget`."""
        path = self.folder / "begun"
        lines = path.read_text("ascii").splitlines() if path.exists() else []
        return [(int(n), int(pid), affinity) for n, pid, affinity in (line.split(" ") for line in lines)]

    def forget(self) -> None:
        for name in ("begun", "stalled"):
            (self.folder / name).unlink(missing_ok=True)

    async def pids(self, *, count: int = 2, other_than: frozenset[int] = frozenset()) -> list[int]:
        """The replicas' processes, once `count` answer that are not among `other_than`."""
        async with asyncio.timeout(90):
            while True:
                stats = [status.stats for status in await asyncio.to_thread(cluster.replica_statuses)]
                pids = [s["pid"] for s in stats if s and s["pid"] not in other_than]
                if len(pids) >= count:
                    return pids
                await asyncio.sleep(0.2)

    async def running(self) -> int:
        statuses = await asyncio.to_thread(cluster.replica_statuses)
        return sum(status.stats["progress"]["running"] for status in statuses if status.stats)


@pytest.fixture(scope="package")  # a process has one Ray: it ends before the next package's begins
def _rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="lf-") as name:
        folder = Path(name)
        started = cluster.start(
            scripted_placement(folder, replicas=2), folder=folder, report=lambda _: None, auth="disabled"
        )
        try:
            yield Rig(started, folder)
        finally:
            started.stop()


@pytest.fixture
def rig(_rig: Rig) -> Rig:
    _rig.forget()
    return _rig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integration" in Path(item.fspath).parts:
            item.add_marker("integration")
