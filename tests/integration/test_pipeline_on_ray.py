"""The whole pipeline on real Ray: what dies costs time, never the answer, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.findings.answer import Answer
from pipeline.llm.scripted import ScriptedModel, seeded_script
from tests.integration.conftest import Rig
from tests.integration.driver import ask_on, essence, patient_dispatcher


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Answer, Counter[str]]:
    """The answer without a cluster and without failures, and the calls it takes; chunks of the same text share some."""
    model = ScriptedModel(seeded_script())
    answer = asyncio.run(ask_on(InlineDispatcher(model)))
    return answer, Counter(call.key("") for call in model.calls)


def calls_begun(rig: Rig) -> Counter[str]:
    path = rig.folder / "pipeline_calls"
    return Counter(path.read_text("ascii").split() if path.exists() else [])


@pytest.fixture(autouse=True)
def _no_calls_yet(rig: Rig) -> None:
    (rig.folder / "pipeline_calls").unlink(missing_ok=True)


async def until_begun(rig: Rig, calls: int) -> None:
    async with asyncio.timeout(60):
        while calls_begun(rig).total() < calls:
            await asyncio.sleep(0.02)


async def test_the_answer_is_the_same_as_without_a_cluster(rig: Rig, undisturbed: tuple[Answer, Counter[str]]) -> None:
    answer = await ask_on(patient_dispatcher(rig.cluster))
    assert essence(answer) == essence(undisturbed[0])
    assert calls_begun(rig) == undisturbed[1]


async def test_a_replica_killed_in_the_middle_costs_no_answer(
    rig: Rig, undisturbed: tuple[Answer, Counter[str]]
) -> None:
    pids = await rig.pids()
    asking = asyncio.create_task(ask_on(patient_dispatcher(rig.cluster)))
    await until_begun(rig, 20)
    os.kill(pids[0], signal.SIGKILL)
    answer = await asking
    assert essence(answer) == essence(undisturbed[0])
    begun = calls_begun(rig)
    assert begun >= undisturbed[1]
    assert (begun - undisturbed[1]).total() <= 32, "only calls in flight repeat: two tasks of eight on each replica"
    await rig.pids()


async def test_a_driver_killed_in_the_middle_resumes_without_paying_twice(
    rig: Rig, undisturbed: tuple[Answer, Counter[str]], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.integration.driver", rig.cluster.address, str(rig.folder)]
    command.append(str(tmp_path / "journal.sqlite"))
    driver = subprocess.Popen(command)
    await until_begun(rig, 30)
    driver.kill()
    await asyncio.to_thread(driver.wait)
    before = calls_begun(rig).total()
    again = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert again.stdout.strip().splitlines()[-1] == essence(undisturbed[0])
    begun = calls_begun(rig)
    assert begun.keys() == undisturbed[1].keys()
    assert before < undisturbed[1].total(), "the first driver was killed before it was done"
    assert (begun - undisturbed[1]).total() <= 32, "only calls in flight when the driver died are repeated"


async def test_cancelling_a_run_leaves_nothing_running(rig: Rig) -> None:
    asking = asyncio.create_task(ask_on(patient_dispatcher(rig.cluster)))
    await until_begun(rig, 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20):
        while await rig.running():
            await asyncio.sleep(0.1)
