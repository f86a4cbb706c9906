"""Who is waiting for a job. A job that was not started in the background ends when its last client has gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from pipeline.errors import LongfoldError
from serving.api.gateway import Gateway
from serving.jobs.job import TERMINAL, Job

log = logging.getLogger("longfold.attendance")

RETURN_S = 30.0
"""After a restart of the gateway its clients have this long to come back."""
_LOOK_S = 5.0
GRACE_S = 5.0
"""OpenAI's clients come back within this time after a broken connection (0.5 s, then up to 8 s with jitter)."""


@dataclass(slots=True)
class Connection:
    """One client at one job."""

    delivered: bool = False
    """The client got all of it."""


class ClientTracker:
    """Counts the clients of each job on this gateway; the job's row says at which gateway its client waits."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._clients: Counter[str] = Counter()
        self._leaving: set[asyncio.Task[None]] = set()
        self._orphans: dict[str, float] = {}
        """Jobs whose clients' gateway is dead, and since when this one knows."""

    async def run(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Cancel the jobs whose gateway has died and whose clients do not come back to this one. Until cancelled."""
        while True:
            try:
                await self.look_for_orphans(clock())
            except LongfoldError as error:
                log.warning("orphans.unseen", extra={"error": type(error).__name__})
            await asyncio.sleep(_LOOK_S)

    async def look_for_orphans(self, now_s: float) -> None:
        before, self._orphans = self._orphans, {}
        for job in await self._gateway.store.attended():
            if self._clients[job.id] or self._gateway.files.presence.lives(job.gateway_id):
                continue
            since_s = self._orphans[job.id] = before.get(job.id, now_s)
            if now_s - since_s >= RETURN_S:
                await self._cancel(job)

    @asynccontextmanager
    async def connect(self, job: Job) -> AsyncIterator[Connection]:
        """Be a client of `job` for as long as the block lasts, however it ends."""
        connection = Connection()
        self._clients[job.id] += 1
        try:
            await self._take_over(job)
            yield connection
        finally:
            self._clients[job.id] -= 1
            if not self._clients[job.id]:
                del self._clients[job.id]
                if not connection.delivered and not job.background:
                    self._watch(job)
                elif connection.delivered and job.request.presentation.get("echo", {}).get("store") is False:
                    self._start(self._forget(job))

    async def _take_over(self, job: Job) -> None:
        """The client of a gateway that died has come to this one."""
        here = self._gateway.files.presence.id
        if job.background or job.gateway_id == here:
            return
        try:
            await self._gateway.store.attend(job.id, here)
        except LongfoldError as error:
            log.warning("job.not_attended", extra={"job_id": job.id, "error": type(error).__name__})

    def _watch(self, job: Job) -> None:
        """A gateway that stops leaves the job to go on: its client comes back to the next one."""
        if not self._gateway.stopping.is_set():
            self._start(self._cancel_if_deserted(job))

    async def _cancel_if_deserted(self, job: Job) -> None:
        await asyncio.sleep(GRACE_S)
        if self._clients[job.id] or self._gateway.stopping.is_set():
            return
        await self._cancel(job)

    async def _cancel(self, job: Job) -> None:
        try:
            known = await self._gateway.store.find(job.id, job.owner)
            if known is not None and known.state not in TERMINAL:
                log.info("job.deserted", extra={"job_id": job.id})
                await self._gateway.store.request_cancel(job.id, job.owner)
        except LongfoldError as error:
            log.warning("job.not_cancelled", extra={"job_id": job.id, "error": type(error).__name__})

    async def _forget(self, job: Job) -> None:
        """`store: false`: nothing is kept once it was delivered."""
        try:
            await self._gateway.store.delete(job.id, job.owner)
        except LongfoldError as error:
            log.warning("job.not_deleted", extra={"job_id": job.id, "error": type(error).__name__})

    def _start(self, leaving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(leaving)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def get_client_tracker(request: Request) -> ClientTracker:
    """One per application."""
    tracker: ClientTracker = request.app.state.client_tracker
    return tracker
