"""Getting calls to a model and their outcomes back in order. The only retries of the project live here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from pipeline.llm.model import Call, Outcome


class Dispatcher(Protocol):
    """Outcome i belongs to call i, in order, yielded as soon as it and all before it are known."""

    def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        """Send `calls` in their order and yield one outcome per call, in the same order.

        `calls` may be lazy; it is read only as far ahead as there is room to send. Several `complete` may run at
        once. A call that keeps failing is yielded as `CallFailed`; nothing else is raised for it. Closing the
        iterator early, or cancelling the task that reads it, aborts the calls that are still running.
        """
        ...
