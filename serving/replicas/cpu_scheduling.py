"""Who may use a slow engine now: calls that stand near an answer have it to themselves.

On a CPU a step that computes a prompt takes seconds, and every output that is being written waits for it: 60 tokens
of a finding beside a gate pass would take as long as the pass. So gate calls wait outside the engine while anything
more urgent is in it, and only as many are let in as keep it busy. A GPU's steps take milliseconds: nobody waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipeline.llm.model import PRIORITY, Call, Stage


class Turns:
    """First come, first served among gate calls; everything else goes at once."""

    def __init__(self, *, bulk_tokens: int | None) -> None:
        """`bulk_tokens`: prompt tokens of gate calls in the engine at once, or one call; None lets all in."""
        self._bulk_tokens = bulk_tokens
        self._bulk_held = 0
        self._urgent = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, call: Call) -> AsyncIterator[None]:
        """Hold a turn for the length of the block."""
        if self._bulk_tokens is None:
            yield
        elif call.priority < PRIORITY[Stage.GATE]:
            self._urgent += 1
            try:
                yield
            finally:
                self._urgent -= 1
                self._admit()
        else:
            tokens = len(call.prompt.token_ids)
            await self._enter(tokens)
            try:
                yield
            finally:
                self._leave(tokens)

    async def _enter(self, tokens: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(tokens)
            raise

    def _leave(self, tokens: int) -> None:
        self._bulk_held -= tokens
        self._admit()

    def _admit(self) -> None:
        assert self._bulk_tokens is not None
        while self._waiting and not self._urgent:
            tokens, turn = self._waiting[0]
            if not turn.done():
                if self._bulk_held and self._bulk_held + tokens > self._bulk_tokens:
                    return
                self._bulk_held += tokens
                turn.set_result(None)
            self._waiting.popleft()
