"""The event feed: one poller for every job that somebody follows, however many follow.

The poller asks the database for the heads of all followed jobs in one query and reads new events once, into a short
buffer per job. Followers take from the buffer; one that has fallen behind it reads the database itself, so a slow
client costs a query and never an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.errors import LongfoldError
from serving.api.errors import Stopping
from serving.jobs.job import TERMINAL, EventRecord, JobState

if TYPE_CHECKING:
    from serving.jobs.store import JobStore

log = logging.getLogger("longfold.events")

_IDLE_POLL_S = 0.1
_FRESH_POLL_S = 0.03
_LOOK_S = 0.01
"""Looking whether anything was written; costs microseconds."""
_AFTER_FAULT_S = 0.5
_BUFFERED_EVENTS = 256
_PAGE_EVENTS = 500
TERMINAL_KINDS = frozenset(f"job.{state}" for state in TERMINAL)


class _Topic:
    """What is known of one followed job."""

    def __init__(self) -> None:
        self.followers = 0
        self.head: int | None = None
        """Its last seq; None until the first poll."""
        self.state = JobState.QUEUED
        self.gone = False
        self.recent: deque[EventRecord] = deque(maxlen=_BUFFERED_EVENTS)
        self._changed = asyncio.Event()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def changed(self) -> asyncio.Event:
        """Set at the next change; take it before looking at the topic, so that no change is missed."""
        return self._changed

    def ended_at(self, seq: int) -> bool:
        """Nothing follows `seq`: not even a retry, which leads a failed job back to the queue."""
        return self.gone or (self.head is not None and self.state in TERMINAL and seq >= self.head)


class EventFeed:
    """Tells followers what happens to jobs. `run` polls as long as it is awaited."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._topics: dict[str, _Topic] = {}
        self._followed = asyncio.Event()
        self._stopping = False

    @property
    def followers(self) -> int:
        return sum(topic.followers for topic in self._topics.values())

    async def run(self) -> None:
        """Poll until cancelled. A database that does not answer is asked again; followers see a pause."""
        while True:
            await self._followed.wait()
            try:
                mark = self._store.change_mark()
                fresh = await self._poll()
                await self._rest(mark, _FRESH_POLL_S if fresh else _IDLE_POLL_S)
            except Exception as error:  # noqa: BLE001  # everybody waits for this one task: it goes on, and says so
                log.warning("feed.delayed", extra={"error": type(error).__name__})
                await asyncio.sleep(_AFTER_FAULT_S)

    def stop(self) -> None:
        """Let everyone who waits for a job's end go, with an error that says to ask again."""
        self._stopping = True
        for topic in self._topics.values():
            topic.wake()

    async def follow(self, job_id: str, after_seq: int = 0) -> AsyncGenerator[EventRecord, None]:
        """Every event of a job after `after_seq`, in order and once; ends with the terminal one.

        The caller has checked whose job it is. A job that is deleted meanwhile ends its stream.
        """
        with self._join(job_id) as topic:
            seq = after_seq
            while True:
                changed = topic.changed()
                for record in await self._next_records(job_id, topic, seq):
                    yield record
                    seq = record.seq
                if topic.ended_at(seq):
                    return
                if topic.head is None or topic.head <= seq:
                    await changed.wait()

    async def wait_terminal(self, job_id: str) -> JobState | None:
        """Wait for the end of a job; None if it was deleted. Raises Stopping when the gateway does."""
        with self._join(job_id) as topic:
            while True:
                changed = topic.changed()
                if self._stopping:
                    raise Stopping("The gateway is stopping; the job goes on. Ask again to wait for it.")
                if topic.gone:
                    return None
                if topic.head is not None and topic.state in TERMINAL:
                    return topic.state
                await changed.wait()

    async def _next_records(self, job_id: str, topic: _Topic, seq: int) -> list[EventRecord]:
        recent = topic.recent
        if recent and recent[0].seq <= seq + 1:
            return [record for record in recent if record.seq > seq]
        if topic.head is not None and topic.head <= seq:
            return []
        while True:
            try:
                return await self._store.events(job_id, after_seq=seq, limit=_PAGE_EVENTS)
            except LongfoldError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(_AFTER_FAULT_S)

    async def _rest(self, mark: object | None, timeout_s: float) -> None:
        """Until the next poll: a write since `mark` ends it early, but polls stay `_FRESH_POLL_S` apart."""
        ends = time.monotonic() + timeout_s
        await asyncio.sleep(_FRESH_POLL_S)
        while time.monotonic() < ends and (mark is None or self._store.change_mark() == mark):  # noqa: ASYNC110  # others write
            await asyncio.sleep(_LOOK_S)

    async def _poll(self) -> bool:
        """Look at all followed jobs once; True if anything is new."""
        topics = dict(self._topics)
        heads = await self._store.heads(list(topics))
        fresh = False
        for job_id, topic in topics.items():
            if job_id not in heads:
                topic.gone = True
                topic.wake()
                continue
            head, state = heads[job_id]
            if (head, state) == (topic.head, topic.state):
                continue
            fresh = True
            if topic.head is not None and head > topic.head:
                # Stated before `head`, so that whoever sees the head finds the events that lead to it.
                await self._read_new(job_id, topic, head)
            topic.head, topic.state = head, state
            topic.wake()
        return fresh

    async def _read_new(self, job_id: str, topic: _Topic, head: int) -> None:
        """Bring the buffer up to `head`; after a jump longer than itself it begins anew at the end of the jump."""
        known = topic.recent[-1].seq if topic.recent else topic.head or 0
        if head - known > _BUFFERED_EVENTS:
            topic.recent.clear()
            known = head - _BUFFERED_EVENTS
        topic.recent.extend(
            record
            for record in await self._store.events(job_id, after_seq=known, limit=_BUFFERED_EVENTS)
            if record.seq <= head
        )

    @contextmanager
    def _join(self, job_id: str) -> Iterator[_Topic]:
        topic = self._topics.setdefault(job_id, _Topic())
        topic.followers += 1
        self._followed.set()
        try:
            yield topic
        finally:
            topic.followers -= 1
            if topic.followers == 0:
                self._topics.pop(job_id, None)
            if not self._topics:
                self._followed.clear()
