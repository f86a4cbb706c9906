"""Clusters that stay, are found and joined by other processes, and go without leaving anything behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import ReplicaUnavailable, SettingInvalid
from serving.cluster import daemon
from serving.cluster.daemon import Served
from serving.cluster.processes import processes
from tests.integration.conftest import scripted_placement

SERVED = Served(model_path="scripted", model_fingerprint="scripted-1", context_tokens=100, dtype="float32")

ASK = """
import asyncio, sys
from pathlib import Path
from pipeline.llm.complete import at_once
from serving.cluster import daemon
from tests.integration.conftest import make_call

async def ask(dispatcher):
    return [one.text for one in await at_once(map(dispatcher.complete, map(make_call, range(5))))]

folder = Path(sys.argv[1])
joined = daemon.join(daemon.find(folder), folder)
print(asyncio.run(ask(joined.dispatcher())))
joined.stop()
record, replicas = daemon.status(folder)
print(record.replicas, [replica.stats["progress"]["output_tokens"] > 0 for replica in replicas])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path of its own: Ray puts sockets there. Whatever is up in the end is taken down."""
    with tempfile.TemporaryDirectory(prefix="lf-") as name:
        yield Path(name)
        daemon.down(Path(name))


def test_a_cluster_stays_is_joined_by_another_process_and_goes_without_a_trace(folder: Path) -> None:
    told: list[str] = []
    record = daemon.up(scripted_placement(folder), SERVED, folder=folder, report=told.append)
    assert told[0] == "starting Ray"
    assert told[-1].startswith("ready")
    assert daemon.find(folder) == record
    assert daemon.up(scripted_placement(folder), SERVED, folder=folder, report=told.append) == record
    with pytest.raises(SettingInvalid, match="longfold down"):
        daemon.up(
            scripted_placement(folder),
            Served(model_path="other", model_fingerprint="other-1", context_tokens=100, dtype="float32"),
            folder=folder,
            report=told.append,
        )
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert asked.stdout.splitlines() == ["['0', '1', '2', '3', '4']", "1 [True]"], asked.stderr
    assert asked.stderr == "", "nothing of Ray's own log reaches the user"
    assert processes(record.mark)
    assert daemon.down(folder)
    assert processes(record.mark) == []
    assert daemon.find(folder) is None
    assert not daemon.down(folder)


def test_a_killed_keeper_leaves_a_stale_record_that_the_next_command_clears(folder: Path) -> None:
    record = daemon.up(scripted_placement(folder), SERVED, folder=folder, report=lambda _: None)
    os.kill(record.keeper_pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while daemon.find(folder) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert daemon.find(folder) is None
    assert not daemon.down(folder)
    assert processes(record.mark) == []


def test_a_replica_that_cannot_start_says_why_and_leaves_nothing(folder: Path) -> None:
    with pytest.raises(ReplicaUnavailable, match="the script has no ending"):
        daemon.up(scripted_placement(folder, script="broken"), SERVED, folder=folder, report=lambda _: None)
    assert daemon.find(folder) is None
    assert not daemon.down(folder)


def test_one_replica_that_cannot_start_does_not_stop_the_other(folder: Path) -> None:
    told: list[str] = []
    record = daemon.up(
        scripted_placement(folder, replicas=2, script="one_only"), SERVED, folder=folder, report=told.append
    )
    assert record.replicas == 1
    assert "1 of 2 replicas are ready" in told[-1]
    assert "uncorrectable ECC error" in told[-1]
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert asked.stdout.splitlines()[0] == "['0', '1', '2', '3', '4']", asked.stderr


def test_replicas_are_deployed_on_two_nodes_and_survive_the_loss_of_one(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.integration.two_nodes", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        cwd=Path(__file__).parents[2],
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]  # Ray says of a lost node what it likes
    steps = {step.pop("step"): step for step in map(json.loads, lines)}
    assert steps == {
        "deployed": {"gpus": [1, 1], "replicas": 2, "nodes": 2},
        "joined": {"replicas": 2, "completed": 40},
        "node lost": {"completed": 40},
        "removed": {"was_up": True},
        "removed again": {"was_up": False},
    }, ran.stderr[-3000:]
