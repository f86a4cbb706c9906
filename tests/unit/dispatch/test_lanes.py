"""What goes into a task, and when, without Ray: replicas that answer when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pipeline.dispatch.ray_tasks import Batch, RayTaskDispatcher, ReplicaAddress
from pipeline.dispatch.retry import RetryPolicy
from pipeline.llm.complete import at_once
from pipeline.llm.model import CallFailed, Completion, News, Outcome, Stage, Usage
from tests.factories import make_call

DONE = Completion(text="done", finish_reason="stop", usage=Usage(calls=1))


class Dispatcher(RayTaskDispatcher):
    """Every batch that was sent, and a way to end its calls."""

    def __init__(self, *, replicas: int = 1, calls_per_replica: int = 8) -> None:
        address = ReplicaAddress(app="none", deployment="none")
        retry = RetryPolicy(first_wait_s=0.0, longest_wait_s=0.0)
        super().__init__(address, replicas=replicas, calls_per_replica=calls_per_replica, retry=retry)
        self.sent: list[Batch] = []
        self.outcomes: dict[Batch, asyncio.Queue[News]] = {}
        self.cancelled: list[Batch] = []

    async def _send(self, batch: Batch) -> AsyncIterator[News]:
        self.sent.append(batch)
        self.outcomes[batch] = asyncio.Queue()
        try:
            for _ in batch.items:
                yield await self.outcomes[batch].get()
        except asyncio.CancelledError:
            self.cancelled.append(batch)
            raise

    def end(self, batch: Batch, places: range | None = None, outcome: Outcome = DONE) -> None:
        for place in places or range(len(batch.items)):
            self.outcomes[batch].put_nowait((place, outcome))

    def sizes(self) -> list[tuple[Stage, int]]:
        return [(batch.items[0].call.stage, len(batch.items)) for batch in self.sent]


def begin(
    dispatcher: Dispatcher, calls: int, stage: Stage = Stage.GATE, affinity: int | None = None
) -> asyncio.Task[list[Outcome]]:
    sent = [make_call(f"call {n}", stage=stage, affinity=affinity) for n in range(calls)]
    return asyncio.create_task(at_once(map(dispatcher.complete, sent)))


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


async def test_what_is_called_together_goes_together_and_more_when_half_is_done() -> None:
    dispatcher = Dispatcher(calls_per_replica=8)
    all_of_them = begin(dispatcher, 20)
    await settle()
    assert dispatcher.sizes() == [(Stage.GATE, 8)]
    dispatcher.end(dispatcher.sent[0], range(3))
    await settle()
    assert len(dispatcher.sent) == 1, "five are still there: the engine has work"
    dispatcher.end(dispatcher.sent[0], range(3, 8))
    await settle()
    assert dispatcher.sizes() == [(Stage.GATE, 8), (Stage.GATE, 8)]
    dispatcher.end(dispatcher.sent[1])
    await settle()
    dispatcher.end(dispatcher.sent[2])
    assert await all_of_them == [DONE] * 20


async def test_gate_calls_under_way_do_not_hold_up_a_finding_and_nothing_holds_up_an_answer() -> None:
    dispatcher = Dispatcher(calls_per_replica=8)
    tasks = [begin(dispatcher, 12)]
    await settle()
    tasks += [begin(dispatcher, 2, Stage.MAP), begin(dispatcher, 3, Stage.SUPPORT)]
    await settle()
    assert dispatcher.sizes() == [(Stage.GATE, 8), (Stage.SUPPORT, 3), (Stage.MAP, 2)]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_calls_about_one_chunk_share_a_lane_unless_it_is_much_busier_than_the_other() -> None:
    dispatcher = Dispatcher(replicas=4, calls_per_replica=100)
    task = begin(dispatcher, 9, affinity=3)
    await settle()
    assert len({batch.lane.number for batch in dispatcher.sent}) == 1
    more = begin(dispatcher, 9, affinity=3)
    await settle()
    assert len({batch.lane.number for batch in dispatcher.sent}) == 2
    for one in (task, more):
        one.cancel()
    await asyncio.wait([task, more])


async def test_the_chunks_of_a_document_are_shared_out_evenly() -> None:
    dispatcher = Dispatcher(replicas=8, calls_per_replica=100)
    calls = [make_call(f"call {n}", stage=Stage.GATE, affinity=123_456 + n) for n in range(50)]
    task = asyncio.create_task(at_once(map(dispatcher.complete, calls)))
    await settle()
    assert sorted(len(batch.items) for batch in dispatcher.sent) == [6] * 6 + [7] * 2
    task.cancel()
    await asyncio.wait([task])


async def test_a_call_that_is_cancelled_while_it_waits_is_never_sent() -> None:
    dispatcher = Dispatcher(calls_per_replica=2)
    first, second = begin(dispatcher, 2), begin(dispatcher, 5)
    await settle()
    second.cancel()
    await asyncio.wait([second])
    dispatcher.end(dispatcher.sent[0])
    await first
    await settle()
    assert dispatcher.sizes() == [(Stage.GATE, 2)]


async def test_a_task_ends_when_nobody_waits_for_any_of_its_calls() -> None:
    dispatcher = Dispatcher()
    one, other = (asyncio.create_task(dispatcher.complete(make_call(text))) for text in ("one", "other"))
    await settle()
    assert dispatcher.sizes() == [(Stage.MAP, 2)]
    one.cancel()
    await asyncio.wait([one])
    assert dispatcher.cancelled == []
    other.cancel()
    await asyncio.wait([other])
    assert dispatcher.cancelled == dispatcher.sent


async def test_a_call_that_has_lost_replicas_goes_alone() -> None:
    dispatcher = Dispatcher()
    lost = CallFailed(error="ReplicaUnavailable", message="gone")
    both = begin(dispatcher, 2)
    for _ in range(2):
        await settle()
        dispatcher.end(dispatcher.sent[-1], outcome=lost)
    await settle()
    assert [len(batch.items) for batch in dispatcher.sent] == [2, 2, 1], "the second waits for the first"
    dispatcher.end(dispatcher.sent[2])
    await settle()
    dispatcher.end(dispatcher.sent[3])
    assert await both == [DONE] * 2
    assert len(dispatcher.sent) == 4
