"""On a slow engine what stands near an answer has it to itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from pipeline.llm.model import PRIORITY, Call, Stage
from serving.replicas.cpu_scheduling import PROMPT_TOKENS_BESIDE_AN_ANSWER, GateThrottle, limit_prefill_during_decode
from tests.factories import make_call


class Desk:
    """Holds turns until told to let go, and knows who holds one."""

    def __init__(self, turns: GateThrottle) -> None:
        self.turns = turns
        self.holding: list[str] = []
        self.done: dict[str, asyncio.Event] = {}

    async def use(self, name: str, call: Call) -> None:
        self.done[name] = asyncio.Event()
        async with self.turns.take(call):
            self.holding.append(name)
            try:
                await self.done[name].wait()
            finally:
                self.holding.remove(name)

    async def settle(self) -> list[str]:
        for _ in range(5):
            await asyncio.sleep(0)
        return sorted(self.holding)


def gate() -> Call:
    return make_call("a" * 100, stage=Stage.GATE)


async def test_gate_calls_wait_while_a_finding_is_written() -> None:
    desk = Desk(GateThrottle(gate_tokens=1000))
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.use("map", make_call(stage=Stage.MAP)))
        await desk.settle()
        group.create_task(desk.use("gate", gate()))
        group.create_task(desk.use("reduce", make_call(stage=Stage.REDUCE)))
        assert await desk.settle() == ["map", "reduce"]
        desk.done["map"].set()
        assert await desk.settle() == ["reduce"]
        desk.done["reduce"].set()
        assert await desk.settle() == ["gate"]
        desk.done["gate"].set()


async def test_only_as_many_gate_calls_as_keep_the_engine_busy_are_let_in() -> None:
    desk = Desk(GateThrottle(gate_tokens=250))
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(desk.use(name, gate()))
        assert await desk.settle() == ["a", "b"]
        for name, then in (("a", ["b", "c"]), ("b", ["c", "d"]), ("c", ["d"]), ("d", [])):
            desk.done[name].set()
            assert await desk.settle() == then


async def test_a_cancelled_wait_gives_its_turn_back() -> None:
    desk = Desk(GateThrottle(gate_tokens=100))
    holding = asyncio.create_task(desk.use("a", gate()))
    waiting = asyncio.create_task(desk.use("b", gate()))
    last = asyncio.create_task(desk.use("c", gate()))
    assert await desk.settle() == ["a"]
    waiting.cancel()
    holding.cancel()
    for task in (waiting, holding):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await desk.settle() == ["c"]
    desk.done["c"].set()
    await last


@dataclass
class Running:
    """As vLLM's scheduler shows a call."""

    priority: int
    num_output_tokens: int


@dataclass
class Scheduler:
    max_num_scheduled_tokens: int = 512
    running: list[Running] = field(default_factory=list)


def test_only_while_an_answer_is_written_steps_are_short() -> None:
    scheduler = Scheduler()
    before_step = limit_prefill_during_decode(scheduler)
    reading = Running(PRIORITY[Stage.DIRECT], num_output_tokens=0)
    finding = Running(PRIORITY[Stage.MAP], num_output_tokens=9)
    for running, tokens in (
        ([finding], 512),
        ([finding, reading], 512),
        ([finding, Running(PRIORITY[Stage.DIRECT], 1)], 2 + PROMPT_TOKENS_BESIDE_AN_ANSWER),
        ([Running(PRIORITY[Stage.REDUCE], 1)], 1 + PROMPT_TOKENS_BESIDE_AN_ANSWER),
        ([finding] * 600 + [Running(PRIORITY[Stage.REDUCE], 1)], 512),
        ([], 512),
    ):
        scheduler.running = running
        before_step()
        assert scheduler.max_num_scheduled_tokens == tokens
