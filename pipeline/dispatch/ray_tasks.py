"""Calls to replicas on a Ray cluster: what waits is gathered into batches, each carried by one Ray task.

    complete ─▶ lane of a replica ─▶ batch ─▶ Ray task ─▶ replica (Ray Serve, routed by lane)
       ▲                                          │ streams (place, outcome) as they come
       └──────────────────────────────────────────┘

Calls about one chunk share a lane, so that the replica's prefix cache holds the chunk. A lane sends the most urgent
first, and again when its replica is down to half of what is worth having there: one task's start is shared by many
calls, and the engine never waits for the driver. Calls that stand near an answer do not wait at all: they go in
tasks of their own, and the engine's queue puts them first.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException

from pipeline.dispatch.retry import RetryPolicy, as_failure, error_class, with_retries
from pipeline.errors import CallTimedOut, InternalError, LongfoldError, Overloaded, ReplicaUnavailable
from pipeline.llm.model import BULK, Call, CallFailed, News, Outcome

CALLS_PER_REPLICA = 32
"""Worth having at a replica on a CPU: what an engine computes at once, and as much waiting for it."""
TASKS_PER_LANE = 2
"""Of one priority: a call that takes long holds its task, and not the lane."""
TASK_CPUS = 0.5
"""Ray starts a process per task that fits: below 0.5 it forks dozens of 145 MB each."""
TICK_S = 0.25
"""How often a task looks up from waiting: Ray's cancellation reaches Python code only, never a blocked wait."""
ALONE_AFTER = 2
"""Replicas that a call may lose among others; from then on it goes alone, in case it is what ends them."""
OVERFLOW_FACTOR = 2.0
OVERFLOW_CALLS = 8
"""A chunk's lane is left when it has more than `OVERFLOW_FACTOR` times the calls of another, and so many more: reading
a chunk again costs seconds, and so does waiting behind this many calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAddress:
    """The Serve deployment that completes calls."""

    app: str
    deployment: str


@dataclass(slots=True, eq=False)
class Item:
    """A call on its way to an outcome."""

    call: Call
    outcome: asyncio.Future[Outcome]
    """Of the present attempt; cancelled with the call."""
    batch: Batch | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """The calls of one task."""

    lane: Lane
    items: Sequence[Item]
    task: asyncio.Task[None] | None = None

    def settle(self, item: Item, outcome: Outcome) -> None:
        """Once for each item, also for one that nobody waits for any more."""
        self.lane.calls[item.call.priority] -= 1
        if not item.outcome.done():
            item.outcome.set_result(outcome)


@dataclass(slots=True, eq=False)
class Lane:
    """What waits for one replica, and what is under way there, by priority."""

    number: int
    waiting: list[tuple[int, int, Item]] = field(default_factory=list)
    """A heap: the most urgent first, then in order of arrival."""
    calls: Counter[int] = field(default_factory=Counter)
    tasks: Counter[int] = field(default_factory=Counter)
    awake: bool = False
    """It will look at what waits before the loop sleeps."""

    @property
    def load(self) -> int:
        return len(self.waiting) + self.calls.total()


class RayTaskDispatcher:
    """A `Dispatcher` on a cluster that `ray` is connected to.

    A cancelled call that shares its task with others runs to its end, unless nobody waits for any of them.
    """

    def __init__(
        self,
        address: ReplicaAddress,
        *,
        replicas: int = 1,
        calls_per_replica: int = CALLS_PER_REPLICA,
        call_deadline_s: float = 3600.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._address = address
        self._calls_per_replica = max(1, calls_per_replica)
        self._call_deadline_s = call_deadline_s
        self._retry = retry or RetryPolicy()
        self._lanes = [Lane(number) for number in range(max(1, replicas))]
        self._arrival = itertools.count()
        self._alone = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    @property
    def window(self) -> int:
        return self._calls_per_replica * len(self._lanes)

    async def complete(self, call: Call) -> Outcome:
        replicas_lost = 0

        async def attempt() -> Outcome:
            nonlocal replicas_lost
            if replicas_lost < ALONE_AFTER:
                outcome = await self._attempt(call, alone=False)
            else:
                async with self._alone:
                    outcome = await self._attempt(call, alone=True)
            if isinstance(outcome, CallFailed):
                replicas_lost += issubclass(error_class(outcome.error), ReplicaUnavailable)
            return outcome

        return await with_retries(attempt, self._retry)

    async def _attempt(self, call: Call, *, alone: bool) -> Outcome:
        lane = self._choose_lane(call.affinity)
        item = Item(call, asyncio.get_running_loop().create_future())
        if alone:
            self._start(lane, [item])
        else:
            heapq.heappush(lane.waiting, (call.priority, next(self._arrival), item))
            self._wake(lane)
        try:
            return await item.outcome
        except asyncio.CancelledError:
            batch = item.batch
            if batch is not None and batch.task is not None and all(other.outcome.done() for other in batch.items):
                batch.task.cancel()
                await asyncio.wait([batch.task])  # Ray has been told before anyone disconnects from it
            raise

    def _choose_lane(self, affinity: int | None) -> Lane:
        """One of two, the same two for every call about a chunk, in all processes."""
        lanes = self._lanes
        if len(lanes) == 1:
            return lanes[0]
        number = next(self._arrival) if affinity is None else affinity
        home = lanes[number % len(lanes)]
        other = lanes[(number + 1 + number // len(lanes) % (len(lanes) - 1)) % len(lanes)]
        busy = home.load > max(other.load * OVERFLOW_FACTOR, other.load + OVERFLOW_CALLS)
        return other if busy else home

    def _wake(self, lane: Lane) -> None:
        """Look at what waits as soon as everyone who is about to call has called."""
        if not lane.awake:
            lane.awake = True
            asyncio.get_running_loop().call_soon(self._send_waiting, lane)

    def _send_waiting(self, lane: Lane) -> None:
        lane.awake = False
        while lane.waiting:
            priority, _, first = lane.waiting[0]
            room = self._calls_per_replica
            if first.outcome.done():  # cancelled while it waited
                heapq.heappop(lane.waiting)
                continue
            if first.call.stage in BULK:
                # What is less urgent is no reason to wait: the engine computes it later.
                under_way = sum(calls for other, calls in lane.calls.items() if other <= priority)
                room -= under_way
                if lane.tasks[priority] >= TASKS_PER_LANE or under_way > self._calls_per_replica // 2:
                    return
            batch: list[Item] = []
            while lane.waiting and lane.waiting[0][0] == priority and len(batch) < room:
                if batch and (batch[0].call.on_text or lane.waiting[0][2].call.on_text):
                    break  # a call that someone reads along goes alone: it ends when its reader leaves
                item = heapq.heappop(lane.waiting)[2]
                if not item.outcome.done():
                    batch.append(item)
            self._start(lane, batch)

    def _start(self, lane: Lane, items: Sequence[Item]) -> None:
        batch = Batch(lane, items)
        priority = items[0].call.priority
        lane.calls[priority] += len(items)
        lane.tasks[priority] += 1
        for item in items:
            item.batch = batch
        batch.task = asyncio.get_running_loop().create_task(self._run(batch))
        self._running.add(batch.task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            lane.tasks[priority] -= 1
            self._wake(lane)

        batch.task.add_done_callback(ended)

    async def _run(self, batch: Batch) -> None:
        """One task: every item is settled when this ends."""
        waiting = dict(enumerate(batch.items))
        lost: LongfoldError = ReplicaUnavailable("The task was cancelled.")
        try:
            async for position, news in self._send(batch):
                if not isinstance(news, str):
                    batch.settle(waiting.pop(position), news)
                    self._wake(batch.lane)
                elif (on_text := waiting[position].call.on_text) and not waiting[position].outcome.done():
                    on_text(news)
            lost = ReplicaUnavailable("The task ended early.")
        except RayError as error:
            lost = ReplicaUnavailable(f"The task was lost: {type(error).__name__}: {_first_line(error)}")
        finally:
            for item in waiting.values():
                batch.settle(item, as_failure(lost))

    async def _send(self, batch: Batch) -> AsyncIterator[News]:
        """Raises RayError if the task is lost."""
        stream = run_calls.options(num_cpus=TASK_CPUS).remote(
            self._address,
            batch.lane.number,
            [replace(item.call, on_text=None) for item in batch.items],
            self._call_deadline_s,
            frozenset(position for position, item in enumerate(batch.items) if item.call.on_text is not None),
        )
        left = len(batch.items)
        try:
            async for ref in stream:
                for news in await ref:
                    left -= not isinstance(news[1], str)
                    yield news
                if not left:
                    return  # not waiting for the task's own end, which may come after we are disconnected
        except (asyncio.CancelledError, GeneratorExit):
            if ray.is_initialized():  # else this would start a cluster
                ray.cancel(stream, force=False, recursive=True)
            raise


@ray.remote(max_retries=0, num_returns="streaming")  # type: ignore[untyped-decorator]  # the dispatcher alone retries
def run_calls(
    address: ReplicaAddress, lane: int, calls: Sequence[Call], deadline_s: float, streamed: frozenset[int]
) -> Iterator[list[News]]:
    """Runs on the cluster: send the calls to a replica together, yield (place, outcome) of those that have ended.

    Before that, for the places in `streamed`, the whole text so far, now and then. When Ray cancels the task, the calls
    that still run are cancelled in their replica.
    """
    loop = asyncio.new_event_loop()
    arrived: asyncio.Queue[list[News]] = asyncio.Queue()
    asking = loop.create_task(_ask_replica(_handle(address), lane, calls, deadline_s, streamed, arrived.put_nowait))
    try:
        while not asking.done() or not arrived.empty():
            following = loop.create_task(arrived.get())
            loop.run_until_complete(
                asyncio.wait([following, asking], timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            )
            if following.done():
                news = following.result()
                while not arrived.empty():
                    news += arrived.get_nowait()
                yield news
            else:
                following.cancel()
    finally:
        asking.cancel()
        loop.run_until_complete(asyncio.wait([asking]))
        loop.close()


@functools.cache
def _handle(address: ReplicaAddress) -> Any:
    """One per worker process: a handle's first call looks the replicas up."""
    return serve.get_deployment_handle(address.deployment, address.app)


async def _ask_replica(
    handle: Any,
    lane: int,
    calls: Sequence[Call],
    deadline_s: float,
    streamed: frozenset[int],
    report: Callable[[list[News]], None],
) -> None:
    """Report an outcome for every call. Ray's exceptions are translated here and nowhere else."""
    waiting = set(range(len(calls)))
    response = handle.options(method_name="complete", stream=True, session_id=str(lane)).remote(calls, streamed)
    failure: LongfoldError = ReplicaUnavailable("The replica ended a call without an outcome.")
    try:
        async with asyncio.timeout(deadline_s):
            async for news in response:
                waiting -= {position for position, what in news if not isinstance(what, str)}
                report(list(news))
    except (TimeoutError, asyncio.CancelledError) as error:
        response.cancel()
        if isinstance(error, asyncio.CancelledError):
            raise
        failure = CallTimedOut(f"The call did not end within {deadline_s:.0f} s.")
    except LongfoldError as error:
        failure = error
    except BackPressureError as error:
        failure = Overloaded(str(error))
    except (RayError, RayServeException) as error:
        failure = _translate(error)
    if waiting:
        report([(position, as_failure(failure)) for position in sorted(waiting)])


def _translate(error: Exception) -> LongfoldError:
    text = f"{type(error).__name__}: {_first_line(error)}"
    if isinstance(error, ray.exceptions.RayTaskError):
        return InternalError(f"The replica raised {text}")
    return ReplicaUnavailable(f"The replica was lost: {text}")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
