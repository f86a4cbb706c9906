"""A replica whose engine has died, or makes no progress, ends its process and says why, once; Serve replaces it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_REPLICA = """
import asyncio, logging, sys
from pipeline.errors import InternalError, ReplicaUnavailable
from serving.replicas import engine
from serving.replicas.engine import ENGINES, Engine, EngineSpec
from serving.replicas.hosting import EngineProgress

logging.basicConfig(level=logging.ERROR, format="%(message)s", stream=sys.stderr)
kind, ask = sys.argv[1:]


class Dying:
    def __init__(self, options): ...
    def start(self): ...
    def stop(self): ...
    async def complete(self, call):
        if kind == "stalls":
            return None
        raise InternalError(kind) if kind == "poison" else ReplicaUnavailable(kind)
    def dead_reason(self):
        return "CUDA out of memory" if kind == "dies" else None
    capacity = 16
    def progress(self):
        return EngineProgress(
            running=3, waiting=0, kv_usage=0.0, idle_s=99.0 if kind == "stalls" else 0.0,
            prompt_tokens=0, cached_tokens=0, output_tokens=0,
        )


async def main():
    ENGINES["dying"] = Dying
    replica = Engine(EngineSpec(engine="dying", options={}, stall_s=30.0))
    for _ in range(20):
        if ask == "health":
            await replica.check_health()
        else:
            async for news in replica.complete([engine._canary()] * 20):
                for _, outcome in news:
                    print(outcome.error, outcome.message)

asyncio.run(main())
"""


def live(kind: str, ask: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(_REPLICA), kind, ask]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("ask", ["calls", "health"])
def test_a_replica_whose_engine_died_ends_and_says_why_once(ask: str) -> None:
    ended = live("dies", ask)
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if line]
    assert lines == ["replica.ended reason=the engine died: CUDA out of memory"], "no traceback for each call"
    assert ended.stdout == "", "no call is given an answer: all are sent again to another replica"


def test_a_replica_that_makes_no_progress_is_ended_by_its_health_check() -> None:
    ended = live("stalls", "health")
    assert ended.returncode == 1
    assert "replica.ended reason=no progress for 99 s with 3 calls running" in ended.stderr


def test_a_call_that_fails_on_a_live_engine_is_a_failure_and_ends_nothing() -> None:
    ended = live("poison", "calls")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["InternalError poison"] * 20 * 20
