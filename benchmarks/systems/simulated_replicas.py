"""Scripted replicas on a simulated clock, and the real dispatcher in front of them.

Everything of `RayTaskDispatcher` is real but for the Ray task itself: order, batches, room, priorities, retries. In its
place, calls go to replicas that answer when their time is over, and what Ray takes of the driver's thread is added as
it was measured. Calls are placed by the real router, which sees every replica's queue as it is; in a cluster each task
sees an older one.

A replica computes one call after another, the most urgent first, each at its measured tokens per second; what an
earlier call on the same chunk left in its prefix cache is not computed again. An engine computes several at a time:
with the same throughput, and later first outcomes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.systems.simulated_clock import SimulatedLoop
from pipeline.dispatch.admission import Deliver
from pipeline.dispatch.ray_tasks import RayTaskDispatcher, ReplicaAddress, settle
from pipeline.llm.model import Call, Completion
from pipeline.llm.scripted import Script, completion_of
from serving.replicas.router import choose

if TYPE_CHECKING:
    from pipeline.dispatch.ray_tasks import Item

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
    calls: int = 0
    """Waiting and running."""
    running: bool = False
    queue: list[tuple[int, int, Call, Done]] = field(default_factory=list)
    warm: set[str] = field(default_factory=set)


class SimulatedReplicas:
    """`count` replicas, each of `tokens_per_s`."""

    def __init__(self, loop: SimulatedLoop, count: int, tokens_per_s: float, script: Script) -> None:
        self._loop, self._tokens_per_s, self._script = loop, tokens_per_s, script
        self._replicas = {f"replica{number:04}": _Replica() for number in range(count)}
        self._names = sorted(self._replicas)
        self._arrival = itertools.count()
        self.ended_s: list[float] = []
        """When each call ended, on the loop's clock."""
        self.router_s = 0.0
        """Processor time of placing calls: spent in the tasks, not in the driver."""

    @property
    def busy_s(self) -> float:
        return sum(replica.busy_s for replica in self._replicas.values())

    def send(self, calls: Sequence[Call], done: Callable[[int, Completion], None]) -> None:
        """`done` gets a call's place and its completion."""
        for position, call in enumerate(calls):
            replica = self._replicas[self._route(call)]
            replica.calls += 1
            told = _told(done, position)
            heapq.heappush(replica.queue, (call.priority, next(self._arrival), call, told))
            if not replica.running:
                self._begin(replica)

    def _route(self, call: Call) -> str:
        if len(self._names) == 1:
            return self._names[0]
        started = time.thread_time()
        chosen = choose(call.affinity, lambda name: self._replicas[name].calls, self._names)[0]
        self.router_s += time.thread_time() - started
        return chosen

    def _begin(self, replica: _Replica) -> None:
        _, _, call, done = heapq.heappop(replica.queue)
        completion = completion_of(call, self._script(call, 0))
        cached = call.prompt.shared_prefix_tokens if call.affinity in replica.warm else 0
        if call.affinity:
            replica.warm.add(call.affinity)
        tokens = completion.usage.prompt_tokens - cached + completion.usage.output_tokens
        seconds = tokens / self._tokens_per_s
        replica.busy_s += seconds
        replica.running = True
        self._loop.call_later(seconds, self._end, replica, completion, done)

    def _end(self, replica: _Replica, completion: Completion, done: Done) -> None:
        with self._loop.free():
            replica.running = False
            replica.calls -= 1
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

    async def _send(self, batch: Sequence[Item], deliver: Deliver) -> None:
        self._loop.spend(self._ray.of_batch(len(batch)))
        waiting = dict(enumerate(batch))
        arrivals: asyncio.Queue[tuple[int, Completion]] = asyncio.Queue()
        with self._loop.free():
            self._replicas.send(
                [item.call for item in batch], lambda position, done: arrivals.put_nowait((position, done))
            )
        while waiting:
            position, completion = await arrivals.get()
            settle(waiting.pop(position), completion, deliver)
