"""Replicas on a Ray cluster of two nodes that was there before, with stand-in GPUs; a node is lost under them.

python -m tests.integration.two_nodes FOLDER

A process of its own, because a process has one Ray. Prints a line of JSON per step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ray.cluster_utils import Cluster

from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from pipeline.dispatch.retry import RetryPolicy
from pipeline.llm.complete import at_once
from pipeline.llm.model import CallFailed
from serving.cluster import ray_cluster
from serving.replicas.placement import Placement
from tests.integration.conftest import make_call, scripted_placement


def report(step: str, **figures: object) -> None:
    print(json.dumps({"step": step, **figures}), flush=True)


async def ask(dispatcher: RayTaskDispatcher, count: int) -> int:
    """How many of so many calls were completed."""
    outcomes = await at_once(dispatcher.complete(make_call(n, affinity=n)) for n in range(count))
    return sum(not isinstance(outcome, CallFailed) for outcome in outcomes)


def join(address: str) -> tuple[ray_cluster.Cluster, RayTaskDispatcher]:
    joined = ray_cluster.join(address, auth="disabled")
    return joined, joined.dispatcher(retry=RetryPolicy(first_wait_s=0.2, longest_wait_s=1.0))


def main() -> None:
    folder = Path(sys.argv[1])
    ray_cluster._set_environment(ray_cluster._ray_environment("disabled", None))
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 6, "num_gpus": 1})
    second = nodes.add_node(num_cpus=6, num_gpus=1)
    seen: list[int] = []

    def place(gpus_of_nodes: Sequence[int]) -> Placement:
        seen.extend(gpus_of_nodes)
        return replace(scripted_placement(folder, replicas=sum(gpus_of_nodes)), num_gpus=1.0)

    try:
        deployed = ray_cluster.deploy_on(nodes.address, place, report=lambda _: None, auth="disabled")
        places = {status.stats["node"] for status in ray_cluster.replica_statuses() if status.stats}
        deployed.stop()
        report("deployed", gpus=seen, replicas=deployed.replicas, nodes=len(places))
        joined, dispatcher = join(nodes.address)
        report("joined", replicas=joined.replicas, completed=asyncio.run(ask(dispatcher, 40)))
        nodes.remove_node(second, allow_graceful=False)
        report("node lost", completed=asyncio.run(ask(dispatcher, 40)))
        joined.stop()
        report("removed", was_up=ray_cluster.remove(nodes.address, auth="disabled"))
        time.sleep(2)
        report("removed again", was_up=ray_cluster.remove(nodes.address, auth="disabled"))
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main()
