"""Real Ray tasks, real Serve replicas, real kills."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import psutil

from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from pipeline.llm.complete import at_once
from pipeline.llm.model import CallFailed, Completion, Outcome, Stage
from tests.integration.conftest import Rig, make_call
from tests.integration.scripts import ENDLESS, POISON, STALL_ONCE


def text(outcome: Outcome) -> str:
    assert isinstance(outcome, Completion), outcome
    return outcome.text


async def texts(dispatcher: RayTaskDispatcher, numbers: Iterable[int], **more: Stage) -> list[str]:
    outcomes = await at_once(dispatcher.complete(make_call(number, **more)) for number in numbers)
    return [text(outcome) for outcome in outcomes]


async def test_every_call_gets_its_own_outcome_under_random_delays(rig: Rig) -> None:
    assert await texts(rig.dispatcher(14), range(60)) == [str(n) for n in range(60)]


async def test_calls_about_one_chunk_go_to_one_replica(rig: Rig) -> None:
    """Nearly always: a replica that does not answer in time is passed over."""
    homes = await _homes(rig)
    assert sum(len(pids) == 1 for pids in homes.values()) >= 10
    assert len(set.union(*homes.values())) == 2, "and the chunks are spread over both"


async def _homes(rig: Rig) -> dict[str, set[int]]:
    """Of twelve chunks with six calls each: the replicas that got them. Without affinity every chunk would have two."""
    rig.forget()
    calls = [make_call(n, affinity=n % 12) for n in range(72)]
    await at_once(map(rig.dispatcher().complete, calls))
    homes: dict[str, set[int]] = defaultdict(set)
    for _, pid, affinity in rig.begun():
        homes[affinity].add(pid)
    return homes


async def test_several_stages_at_once_each_get_their_own(rig: Rig) -> None:
    dispatcher = rig.dispatcher()

    async def stage(start: int, kind: Stage) -> list[str]:
        return await texts(dispatcher, range(start, start + 20), stage=kind)

    results = await asyncio.gather(stage(0, Stage.MAP), stage(100, Stage.GATE), stage(200, Stage.REDUCE))
    assert results == [[str(n) for n in range(start, start + 20)] for start in (0, 100, 200)]


async def test_a_call_is_told_of_while_it_is_written(rig: Rig) -> None:
    told: list[str] = []
    calls = [replace(make_call(1234, stage=Stage.DIRECT), on_text=told.append), make_call(5, stage=Stage.DIRECT)]
    outcomes = await at_once(map(rig.dispatcher().complete, calls))
    assert [text(outcome) for outcome in outcomes] == ["1234", "5"]
    assert told == ["12"], "the replica has half of it before it sleeps"


async def test_a_poison_call_fails_as_a_value_while_the_others_succeed(rig: Rig) -> None:
    numbers = [0, 1, POISON, 3, 4]
    outcomes = await at_once(map(rig.dispatcher().complete, map(make_call, numbers)))
    failed = outcomes.pop(2)
    assert isinstance(failed, CallFailed)
    assert (failed.error, failed.message, failed.attempts) == ("InternalError", "poison", 1)
    assert [text(o) for o in outcomes] == ["0", "1", "3", "4"]


async def test_a_killed_replica_costs_time_but_no_answer_and_only_its_calls_are_repeated(rig: Rig) -> None:
    dispatcher = rig.dispatcher(16)
    victim = (await rig.pids())[0]
    ended = itertools.count(1)

    async def complete(number: int) -> str:
        outcome = await dispatcher.complete(make_call(number))
        if next(ended) == 20:
            os.kill(victim, signal.SIGKILL)
        return text(outcome)

    assert await at_once(map(complete, range(120))) == [str(n) for n in range(120)]
    begun = rig.begun()
    repeated = {number for number, times in Counter(n for n, _, _ in begun).items() if times > 1}
    assert repeated <= {number for number, pid, _ in begun if pid == victim}
    assert len(repeated) <= 16, "at most what was in flight there"
    assert victim not in await rig.pids()


async def test_a_task_that_is_killed_for_its_memory_loses_no_answer(rig: Rig) -> None:
    """As the kernel and Ray's memory monitor do it: SIGKILL of the task's process; its replica lives on."""
    dispatcher = rig.dispatcher(16)
    ended = itertools.count(1)

    async def complete(number: int) -> str:
        outcome = await dispatcher.complete(make_call(number))
        if next(ended) == 20:
            for process in psutil.Process().children(recursive=True):
                if "run_calls" in process.name() or "run_calls" in " ".join(process.cmdline()):
                    process.kill()
                    killed.append(process.pid)
        return text(outcome)

    killed: list[int] = []
    replicas = await rig.pids()
    assert await at_once(map(complete, range(80))) == [str(n) for n in range(80)]
    assert killed
    assert sorted(await rig.pids()) == sorted(replicas)


async def test_both_replicas_lost_at_once_are_waited_for(rig: Rig) -> None:
    for pid in await rig.pids():
        os.kill(pid, signal.SIGKILL)
    assert await texts(rig.dispatcher(), range(10)) == [str(n) for n in range(10)]
    await rig.pids()


async def test_a_stalled_replica_is_replaced_and_its_call_done_again(rig: Rig) -> None:
    before = frozenset(await rig.pids())
    assert await texts(rig.dispatcher(), [STALL_ONCE]) == [str(STALL_ONCE)]
    after = await rig.pids()
    assert len(before & frozenset(after)) == 1


async def test_cancelling_leaves_nothing_running(rig: Rig) -> None:
    running = asyncio.create_task(texts(rig.dispatcher(8), [1, *[ENDLESS] * 30]))
    assert await becomes(rig, running=True)
    running.cancel()
    await asyncio.wait([running])
    assert await becomes(rig, running=False)


async def test_a_cancelled_call_that_someone_reads_along_ends_alone(rig: Rig) -> None:
    dispatcher = rig.dispatcher()
    chats = [replace(make_call(ENDLESS, stage=Stage.DIRECT), on_text=lambda _: None) for _ in range(2)]
    one, other = (asyncio.create_task(dispatcher.complete(chat)) for chat in chats)
    assert await becomes(rig, running=2)
    one.cancel()
    await asyncio.wait([one])
    assert await becomes(rig, running=1)
    other.cancel()
    await asyncio.wait([other])
    assert await becomes(rig, running=0)


async def becomes(rig: Rig, *, running: int | bool) -> bool:
    """Whether so many calls run (any, none) within ten seconds."""
    for _ in range(100):
        now = await rig.running()
        if (bool(now) if isinstance(running, bool) else now) == running:
            return True
        await asyncio.sleep(0.1)
    return False
