"""Scripted replicas on a simulated clock, and the real dispatcher in front of them.

Everything of `RayTaskDispatcher` is real but for the Ray task itself: lanes, batches, priorities, retries. In its
place, calls go to replicas that answer when their time is over, and what Ray takes of the driver's thread is added as
it was measured. Batches are placed by the real router.

A replica computes one call after another, the most urgent first, each at its measured tokens per second; what an
earlier call on the same chunk left in its prefix cache is not computed again. An engine computes several at a time:
with the same throughput, and later first outcomes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.systems.simulated_clock import SimulatedLoop
from pipeline.dispatch.ray_tasks import Batch, RayTaskDispatcher, ReplicaAddress
from pipeline.llm.model import Call, Completion, News
from pipeline.llm.scripted import Script, completion_of
from serving.replicas.router import replica_of

Done = Callable[[Completion], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayShare:
    """Seconds of the driver's thread that Ray takes, measured: of every task, and of every call in it."""

    task_s: float
    call_s: float

    def of_batch(self, calls: int) -> float:
        return self.task_s + self.call_s * calls


@dataclass(slots=True)
class _Replica:
    busy_s: float = 0.0
    running: bool = False
    queue: list[tuple[int, int, Call, Done]] = field(default_factory=list)
    warm: set[int | None] = field(default_factory=set)


class SimulatedReplicas:
    """`count` replicas, each of `tokens_per_s`."""

    def __init__(self, loop: SimulatedLoop, count: int, tokens_per_s: float, script: Script) -> None:
        self._loop, self._tokens_per_s, self._script = loop, tokens_per_s, script
        self._replicas = {f"replica{number:04}": _Replica() for number in range(count)}
        self._names = tuple(sorted(self._replicas))
        self._arrival = itertools.count()
        self.ended_s: list[float] = []
        """When each call ended, on the loop's clock."""
        self.router_s = 0.0
        """Processor time of placing batches: spent in the tasks, not in the driver."""

    @property
    def busy_s(self) -> float:
        return sum(replica.busy_s for replica in self._replicas.values())

    def send(self, lane: int, calls: Sequence[Call], done: Callable[[int, Completion], None]) -> None:
        """`done` gets a call's place and its completion."""
        started = time.thread_time()
        replica = self._replicas[replica_of(lane, self._names)]
        self.router_s += time.thread_time() - started
        for position, call in enumerate(calls):
            told = _told(done, position)
            heapq.heappush(replica.queue, (call.priority, next(self._arrival), call, told))
            if not replica.running:
                self._begin(replica)

    def _begin(self, replica: _Replica) -> None:
        _, _, call, done = heapq.heappop(replica.queue)
        completion = completion_of(call, self._script(call, 0))
        cached = call.prompt.shared_prefix_tokens if call.affinity in replica.warm else 0
        if call.affinity is not None:
            replica.warm.add(call.affinity)
        tokens = completion.usage.prompt_tokens - cached + completion.usage.output_tokens
        seconds = tokens / self._tokens_per_s
        replica.busy_s += seconds
        replica.running = True
        self._loop.call_later(seconds, self._end, replica, completion, done)

    def _end(self, replica: _Replica, completion: Completion, done: Done) -> None:
        with self._loop.free():
            replica.running = False
            self.ended_s.append(self._loop.time())
            if replica.queue:
                self._begin(replica)
        done(completion)


def _told(done: Callable[[int, Completion], None], position: int) -> Done:
    return lambda completion: done(position, completion)


class SimulatedDispatcher(RayTaskDispatcher):
    """The real one, with scripted replicas in place of Ray."""

    def __init__(
        self, loop: SimulatedLoop, replicas: SimulatedReplicas, count: int, ray: RayShare, **more: Any
    ) -> None:
        super().__init__(ReplicaAddress(app="simulated", deployment="simulated"), replicas=count, **more)
        self._loop, self._replicas, self._ray = loop, replicas, ray

    async def _send(self, batch: Batch) -> AsyncIterator[News]:
        self._loop.spend(self._ray.of_batch(len(batch.items)))
        arrivals: asyncio.Queue[News] = asyncio.Queue()
        with self._loop.free():
            self._replicas.send(
                batch.lane.number,
                [item.call for item in batch.items],
                lambda position, done: arrivals.put_nowait((position, done)),
            )
        for _ in batch.items:
            yield await arrivals.get()
