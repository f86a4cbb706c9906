"""Real Ray tasks, real Serve replicas, real kills."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict
from dataclasses import replace

from pipeline.llm.model import CallFailed, Completion, Outcome, Stage
from tests.integration.conftest import Rig, make_call
from tests.integration.scripts import ENDLESS, POISON, STALL_ONCE


def text(outcome: Outcome) -> str:
    assert isinstance(outcome, Completion), outcome
    return outcome.text


async def test_outcomes_come_in_the_order_of_the_calls_under_random_delays(rig: Rig) -> None:
    outcomes = [text(o) async for o in rig.dispatcher(calls=7).complete(make_call(n) for n in range(60))]
    assert outcomes == [str(n) for n in range(60)]


async def test_calls_about_one_chunk_go_to_one_replica(rig: Rig) -> None:
    """Nearly always: a replica that does not answer in time, or seems to have a long queue, is passed over.

    For ten seconds after a cancelled run a router takes its calls for a queue; so this waits until that is forgotten.
    """
    async with asyncio.timeout(60):
        while sum(len(pids) == 1 for pids in (await _homes(rig)).values()) < 10:
            await asyncio.sleep(2)
    homes = await _homes(rig)
    assert sum(len(pids) == 1 for pids in homes.values()) >= 10
    assert len(set.union(*homes.values())) == 2, "and the chunks are spread over both"


async def _homes(rig: Rig) -> dict[str, set[int]]:
    """Of twelve chunks with six calls each: the replicas that got them. Without affinity every chunk would have two."""
    rig.forget()
    calls = [make_call(n, affinity=f"chunk-{n % 12}") for n in range(72)]
    _ = [o async for o in rig.dispatcher(calls=2).complete(calls)]
    homes: dict[str, set[int]] = defaultdict(set)
    for _, pid, affinity in rig.begun():
        homes[affinity].add(pid)
    return homes


async def test_several_stages_at_once_each_get_their_own(rig: Rig) -> None:
    dispatcher = rig.dispatcher()

    async def stage(start: int, kind: Stage) -> list[str]:
        calls = [make_call(n, stage=kind) for n in range(start, start + 20)]
        return [text(o) async for o in dispatcher.complete(calls)]

    results = await asyncio.gather(stage(0, Stage.MAP), stage(100, Stage.GATE), stage(200, Stage.REDUCE))
    assert results == [[str(n) for n in range(start, start + 20)] for start in (0, 100, 200)]


async def test_a_call_is_told_of_while_it_is_written(rig: Rig) -> None:
    told: list[str] = []
    calls = [replace(make_call(1234, stage=Stage.DIRECT), tell=told.append), make_call(5, stage=Stage.DIRECT)]
    outcomes = [text(o) async for o in rig.dispatcher().complete(calls)]
    assert outcomes == ["1234", "5"]
    assert told == ["12"], "the replica has half of it before it sleeps"


async def test_a_poison_call_fails_as_a_value_while_the_others_succeed(rig: Rig) -> None:
    numbers = [0, 1, POISON, 3, 4]
    outcomes = [o async for o in rig.dispatcher().complete(map(make_call, numbers))]
    failed = outcomes.pop(2)
    assert isinstance(failed, CallFailed)
    assert (failed.error, failed.message, failed.attempts) == ("InternalError", "poison", 1)
    assert [text(o) for o in outcomes] == ["0", "1", "3", "4"]


async def test_a_killed_replica_costs_time_but_no_answer_and_only_its_calls_are_repeated(rig: Rig) -> None:
    dispatcher = rig.dispatcher(calls=8)
    victim = (await rig.pids())[0]
    outcomes = []
    async for outcome in dispatcher.complete(make_call(n) for n in range(120)):
        outcomes.append(text(outcome))
        if len(outcomes) == 20:
            os.kill(victim, signal.SIGKILL)
    assert outcomes == [str(n) for n in range(120)]
    begun = rig.begun()
    repeated = {number for number, times in Counter(n for n, _, _ in begun).items() if times > 1}
    assert repeated <= {number for number, pid, _ in begun if pid == victim}
    assert len(repeated) <= 4 * 8, "at most the calls in flight: two tasks of eight for each of two replicas"
    assert victim not in await rig.pids()


async def test_both_replicas_lost_at_once_are_waited_for(rig: Rig) -> None:
    for pid in await rig.pids():
        os.kill(pid, signal.SIGKILL)
    outcomes = [text(o) async for o in rig.dispatcher().complete(make_call(n) for n in range(10))]
    assert outcomes == [str(n) for n in range(10)]
    await rig.pids()


async def test_a_stalled_replica_is_replaced_and_its_call_done_again(rig: Rig) -> None:
    before = frozenset(await rig.pids())
    outcomes = [text(o) async for o in rig.dispatcher().complete([make_call(STALL_ONCE)])]
    assert outcomes == [str(STALL_ONCE)]
    after = await rig.pids()
    assert len(before & frozenset(after)) == 1


async def test_closing_the_iterator_leaves_nothing_running(rig: Rig) -> None:
    stream = rig.dispatcher(calls=4).complete(make_call(n) for n in [1, *[ENDLESS] * 30])
    assert text(await anext(stream)) == "1"
    assert await rig.running() > 0
    await stream.aclose()  # type: ignore[attr-defined]
    assert await becomes(rig, running=False)


async def test_cancelling_the_reader_leaves_nothing_running(rig: Rig) -> None:
    async def read() -> None:
        async for _ in rig.dispatcher().complete(make_call(ENDLESS) for _ in range(20)):
            raise AssertionError("these never end")

    reader = asyncio.create_task(read())
    assert await becomes(rig, running=True)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert await becomes(rig, running=False)


async def becomes(rig: Rig, *, running: bool) -> bool:
    """Whether calls run, or none do, within ten seconds."""
    for _ in range(100):
        if bool(await rig.running()) == running:
            return True
        await asyncio.sleep(0.1)
    return False
