"""Calls to replicas on a Ray cluster: batches of calls, each carried by one Ray task, outcomes one by one.

    complete ─▶ batches ─▶ Ray task ─▶ replica (Ray Serve, routed by chunk)
       ▲                      │ streams (position, outcome) as they come
       └── in order ◀─────────┘

A batch keeps two things small: what one task's start costs per call, and what is lost when a task is. A few batches
per replica are in flight, so that the engine always has a queue. Calls that stand near an answer do not wait for
that: they go out at once, in tasks of their own, and the engine's queue puts them first.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException

from pipeline.dispatch.admission import Deliver, Place, Room, in_order
from pipeline.dispatch.retry import RetryPolicy, as_failure, error_class
from pipeline.errors import CallTimedOut, InternalError, LongfoldError, Overloaded, ReplicaUnavailable
from pipeline.llm.model import PRIORITY, Call, CallFailed, Outcome, Stage

URGENT = PRIORITY[Stage.SUPPORT]
"""Priority from which on (downwards) a call does not wait for a place."""
TICK_S = 0.25
"""How often a task looks up from waiting: Ray's cancellation reaches Python code only, never a blocked wait."""
ALONE_AFTER = 2
"""Replicas that a call may lose among others; from then on it goes alone, in case it is what ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAddress:
    """The Serve deployment that completes calls."""

    app: str
    deployment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How much one task carries, and how many are in flight."""

    first_calls: int = 4
    """The first batch is small: the first outcome comes early."""
    calls: int = 16
    tokens: int = 65_536
    tasks_per_replica: int = 2
    task_cpus: float = 0.5
    """Ray starts a process per task that fits: below 0.5 it forks dozens of 145 MB each."""


@dataclass(slots=True)
class Item:
    """A call on its way to an outcome."""

    index: int
    call: Call
    failure: CallFailed | None = None
    failing_since: float = 0.0
    replicas_lost: int = 0


class RayTaskDispatcher:
    """A `Dispatcher` on a cluster that `ray` is connected to."""

    def __init__(
        self,
        address: ReplicaAddress,
        *,
        replicas: int = 1,
        batching: Batching | None = None,
        call_deadline_s: float = 3600.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._address = address
        self._batching = batching or Batching()
        self._call_deadline_s = call_deadline_s
        self._retry = retry or RetryPolicy()
        self._room = Room(places=max(1, replicas) * self._batching.tasks_per_replica, tokens=0)
        self._alone = asyncio.Lock()

    def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        async def feed(deliver: Deliver) -> None:
            source = _Peekable(Item(index, call) for index, call in enumerate(calls))
            limit = self._batching.first_calls
            async with asyncio.TaskGroup() as group:
                while (first := source.peek()) is not None:
                    if first.call.priority <= URGENT:
                        group.create_task(self._finish(self._take(source, self._batching.calls), deliver))
                        continue
                    place = await self._room.enter(priority=first.call.priority)
                    task = group.create_task(self._finish(self._take(source, limit), deliver, place))
                    task.add_done_callback(place.leave)  # also if it is cancelled before its first step
                    limit = self._batching.calls

        return in_order(feed)

    def _take(self, source: _Peekable, limit: int) -> list[Item]:
        """The next calls of one urgency, up to a batch."""
        batch = [source.pop()]
        tokens = batch[0].call.cost_tokens()
        while len(batch) < limit and (item := source.peek()) is not None:
            tokens += item.call.cost_tokens()
            if tokens > self._batching.tokens or (item.call.priority > URGENT) != (batch[0].call.priority > URGENT):
                break
            batch.append(source.pop())
        return batch

    async def _finish(self, batch: list[Item], deliver: Deliver, place: Place | None = None) -> None:
        """Send until each call has its final outcome. A bulk batch gives up its place between attempts."""
        bulk = place is not None
        while True:
            try:
                if batch[0].replicas_lost >= ALONE_AFTER:
                    await self._send_alone(batch, deliver)
                else:
                    await self._send(batch, deliver)
            finally:
                if place is not None:
                    place.leave()
            batch, wait_s = self._sort_out(batch, deliver)
            if not batch:
                return
            await asyncio.sleep(wait_s)
            if bulk:
                place = await self._room.enter(priority=batch[0].call.priority)

    def _sort_out(self, batch: list[Item], deliver: Deliver) -> tuple[list[Item], float]:
        """Deliver the failures that are final; return the calls to send again, and after how many seconds."""
        again, wait_s = [], 0.0
        now = time.monotonic()
        for item in batch:
            if item.failure is None:
                continue
            item.failing_since = item.failing_since or now
            item_wait_s = self._retry.wait_s(item.failure, failing_s=now - item.failing_since)
            if item_wait_s is None:
                deliver(item.index, item.failure)
            else:
                again.append(item)
                wait_s = max(wait_s, item_wait_s)
        return again, wait_s

    async def _send_alone(self, batch: list[Item], deliver: Deliver) -> None:
        for item in batch:
            async with self._alone:
                await self._send([item], deliver)

    async def _send(self, batch: Sequence[Item], deliver: Deliver) -> None:
        """One task. Delivers completions; leaves in `failure` why an item has none."""
        waiting = dict(enumerate(batch))
        stream = run_calls.options(num_cpus=self._batching.task_cpus).remote(
            self._address,
            [replace(item.call, tell=None) for item in batch],
            self._call_deadline_s,
            frozenset(position for position, item in waiting.items() if item.call.tell is not None),
        )
        ended = False
        try:
            async for ref in stream:
                for position, news in await ref:
                    if not isinstance(news, str):
                        settle(waiting.pop(position), news, deliver)
                    elif tell := waiting[position].call.tell:
                        tell(news)
            lost = "The task ended early."
            ended = True
        except RayError as error:
            lost = f"The task was lost: {type(error).__name__}: {_first_line(error)}"
            ended = True
        finally:
            if not ended:
                ray.cancel(stream, force=False, recursive=True)
        for item in waiting.values():
            settle(item, as_failure(ReplicaUnavailable(lost)), deliver)


def settle(item: Item, outcome: Outcome, deliver: Deliver) -> None:
    """Deliver a completion; note a failure, which may be sent again."""
    if not isinstance(outcome, CallFailed):
        item.failure = None
        deliver(item.index, outcome)
        return
    attempts = item.failure.attempts if item.failure else 0
    item.failure = replace(outcome, attempts=attempts + 1)
    item.replicas_lost += issubclass(error_class(outcome.error), ReplicaUnavailable)


class _Peekable:
    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._next: Item | None = None

    def peek(self) -> Item | None:
        if self._next is None:
            self._next = next(self._items, None)
        return self._next

    def pop(self) -> Item:
        item = self.peek()
        assert item is not None
        self._next = None
        return item


@ray.remote(max_retries=0, num_returns="streaming")  # type: ignore[untyped-decorator]  # the dispatcher alone retries
def run_calls(
    address: ReplicaAddress, calls: Sequence[Call], deadline_s: float, told: frozenset[int] = frozenset()
) -> Iterator[list[tuple[int, str | Outcome]]]:
    """Runs on the cluster: send all calls, yield (position, outcome) of those that ended since the last time.

    Before that, for the positions in `told`, the text so far whenever there is more of it.
    When Ray cancels the task, the calls that still run are cancelled in their replicas.
    """
    handle = _handle(address)
    loop = asyncio.new_event_loop()
    texts: dict[int, str] = {}

    def start(position: int, call: Call) -> asyncio.Task[Outcome]:
        tell = functools.partial(texts.__setitem__, position) if position in told else None
        return loop.create_task(_complete(handle, call, deadline_s, tell))

    running = {start(position, call): position for position, call in enumerate(calls)}
    try:
        while running:
            done, _ = loop.run_until_complete(
                asyncio.wait(running, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            )
            ended: list[tuple[int, str | Outcome]] = [(running.pop(task), task.result()) for task in done]
            news = [(position, text) for position, text in texts.items() if position in running.values()]
            texts.clear()
            if ended or news:
                yield [*news, *ended]
    finally:
        for task in running:
            task.cancel()
        if running:
            loop.run_until_complete(asyncio.wait(running))
        loop.close()


@functools.cache
def _handle(address: ReplicaAddress) -> Any:
    """One per worker process: a handle's first call looks the replicas up."""
    return serve.get_deployment_handle(address.deployment, address.app)


async def _complete(handle: Any, call: Call, deadline_s: float, tell: Callable[[str], None] | None) -> Outcome:
    """Ask a replica. Ray's exceptions are translated here and nowhere else."""
    method = "complete" if tell is None else "write"
    response = handle.options(method_name=method, stream=tell is not None, session_id=call.affinity).remote(call)
    try:
        async with asyncio.timeout(deadline_s):
            outcome: Outcome = await (response if tell is None else _last(response, tell))
    except (TimeoutError, asyncio.CancelledError) as error:
        response.cancel()
        if isinstance(error, asyncio.CancelledError):
            raise
        return as_failure(CallTimedOut(f"The call did not end within {deadline_s:.0f} s."))
    except LongfoldError as error:
        return as_failure(error)
    except BackPressureError as error:
        return as_failure(Overloaded(str(error)))
    except (RayError, RayServeException) as error:
        return as_failure(_translate(error))
    return outcome


async def _last(response: AsyncIterator[str | Outcome], tell: Callable[[str], None]) -> Outcome:
    async for news in response:
        if not isinstance(news, str):
            return news
        tell(news)
    raise ReplicaUnavailable("The replica ended a call without an outcome.")


def _translate(error: Exception) -> LongfoldError:
    text = f"{type(error).__name__}: {_first_line(error)}"
    if isinstance(error, ray.exceptions.RayTaskError):
        return InternalError(f"The replica raised {text}")
    return ReplicaUnavailable(f"The replica was lost: {text}")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
