"""Findings in document order, as soon as everything before them is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pipeline.findings.finding import Finding


class Frontier:
    """Takes what became of each chunk, in any order; gives findings in document order."""

    def __init__(self, chunks: int) -> None:
        self._resolved: list[Finding | None] = [None] * chunks
        self._known = [False] * chunks
        self._changed = asyncio.Event()

    def resolve(self, chunk_index: int, finding: Finding | None) -> None:
        """Say what became of a chunk, once: its finding, or None if it gave none or failed."""
        assert not self._known[chunk_index], f"chunk {chunk_index} was resolved twice"
        self._known[chunk_index] = True
        self._resolved[chunk_index] = finding
        self._changed.set()

    async def in_order(self) -> AsyncIterator[Finding]:
        """Yield the findings; ends when every chunk is resolved."""
        for index in range(len(self._known)):
            while not self._known[index]:
                self._changed.clear()
                await self._changed.wait()
            finding = self._resolved[index]
            if finding is not None:
                yield finding
