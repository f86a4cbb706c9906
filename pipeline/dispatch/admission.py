"""Who may go now, who waits: room for so many calls, or tokens, at once. Dispatchers and replicas admit by it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext

from pipeline.llm.model import BULK, Call


class AdmissionQueue:
    """The most urgent first, then first come, first served.

    Something larger than all the room is admitted when the room is empty.
    """

    def __init__(self, *, slots: int | None = None, tokens: int | None = None) -> None:
        """None: as many as come."""
        self._slots = math.inf if slots is None else slots
        self._tokens = math.inf if tokens is None else tokens
        self._held_slots = self._held_tokens = 0
        self._ahead = 0
        self._queue: list[tuple[int, int, int, asyncio.Future[None]]] = []
        self._arrival = itertools.count()

    @asynccontextmanager
    async def slot(self, *, priority: int = 0, tokens: int = 0) -> AsyncIterator[None]:
        """Wait for a slot and `tokens`, and hold them for the length of the block; the lowest priority goes first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (priority, next(self._arrival), tokens, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled after it was admitted, before it could begin
                self._release(tokens)
            turn.cancel()
            self._admit()
            raise
        try:
            yield
        finally:
            self._release(tokens)

    def for_call(self, call: Call) -> AbstractAsyncContextManager[None]:
        """A slot for a call that reads the document; what is nearer to an answer goes at once."""
        return self.slot(priority=call.priority) if call.stage in BULK else nullcontext()

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Go at once, whatever is held. While the block lasts nobody is admitted."""
        self._ahead += 1
        try:
            yield
        finally:
            self._ahead -= 1
            self._admit()

    def _release(self, tokens: int) -> None:
        self._held_slots -= 1
        self._held_tokens -= tokens
        self._admit()

    def _admit(self) -> None:
        while self._queue and not self._ahead:
            _, _, tokens, turn = self._queue[0]
            if not turn.done():
                full = self._held_slots >= self._slots or self._held_tokens + tokens > self._tokens
                if self._held_slots and full:
                    return
                self._held_slots += 1
                self._held_tokens += tokens
                turn.set_result(None)
            heapq.heappop(self._queue)
