"""Outcomes that arrive in any order, yielded in the order of their calls; and room for those in flight."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

from pipeline.llm.model import Outcome

Deliver = Callable[[int, Outcome], None]


async def in_order(feed: Callable[[Deliver], Awaitable[None]]) -> AsyncIterator[Outcome]:
    """Run `feed`, which delivers outcome i once for every i from 0, and yield them in order.

    Work goes on while the reader is busy. Closing the iterator cancels `feed` and waits until it has cleaned up;
    what `feed` raises is raised here, after the outcomes that came before.
    """
    arrivals: asyncio.Queue[tuple[int, Outcome] | None] = asyncio.Queue()

    async def run() -> None:
        try:
            await feed(lambda index, outcome: arrivals.put_nowait((index, outcome)))
        except ExceptionGroup as group:  # of the task group in `feed`: the first is the one that ended the others
            raise group.exceptions[0] from None
        finally:
            arrivals.put_nowait(None)

    task = asyncio.create_task(run())
    early: dict[int, Outcome] = {}
    following = 0
    try:
        while (arrival := await arrivals.get()) is not None:
            early[arrival[0]] = arrival[1]
            while following in early:
                yield early.pop(following)
                following += 1
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


class Place:
    """Held room. Leaving twice is leaving once: who works there leaves early, whoever started them makes sure."""

    def __init__(self, free: Callable[[int], None], tokens: int) -> None:
        self._free, self._tokens = free, tokens
        self._held = True

    def leave(self, _task: object = None) -> None:
        if self._held:
            self._held = False
            self._free(self._tokens)


class Room:
    """Bounds how much is in flight; whoever stands nearer to an answer enters first, then first come first served.

    Something larger than all the room enters when the room is empty.
    """

    def __init__(self, *, places: int, tokens: int) -> None:
        self._places, self._tokens = places, tokens
        self._held_places = self._held_tokens = 0
        self._queue: list[tuple[int, int, int, asyncio.Future[None]]] = []
        self._arrival = itertools.count()

    async def enter(self, *, priority: int, tokens: int = 0) -> Place:
        """Wait for a place and `tokens`; they are held until the place is left."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = Place(self._free, tokens)
        heapq.heappush(self._queue, (priority, next(self._arrival), tokens, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                place.leave()
            turn.cancel()
            self._admit()
            raise
        return place

    def _free(self, tokens: int) -> None:
        self._held_places -= 1
        self._held_tokens -= tokens
        self._admit()

    def _admit(self) -> None:
        while self._queue:
            _, _, tokens, turn = self._queue[0]
            if not turn.done():
                if self._held_places and (
                    self._held_places >= self._places or self._held_tokens + tokens > self._tokens
                ):
                    return
                self._held_places += 1
                self._held_tokens += tokens
                turn.set_result(None)
            heapq.heappop(self._queue)
