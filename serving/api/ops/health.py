"""Whether this process lives, and whether questions can be answered.

A runner is alive if its beat moves by this process's own clock; what time it says it is plays no part.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from pipeline.errors import LongfoldError
from serving.api.gateway import CurrentGateway
from serving.jobs.job import RunnerStatus

if TYPE_CHECKING:
    from serving.jobs.store import JobStore

router = APIRouter(tags=["operations"])
log = logging.getLogger("longfold.health")

LOOK_EVERY_S = 2.0
STANDS_STILL_S = 10.0
"""Five beats; as long as a lease."""
ROOM_BYTES = 1 << 20
"""A write to the database may take so much on its way."""


class RunnerWatch:
    """Looks at the runners every two seconds; whoever asks gets what was seen last."""

    def __init__(self, store: JobStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._began_s = clock()
        self._beats: dict[str, tuple[int, float | None]] = {}
        self._known: list[RunnerStatus] = []
        self.alive: list[RunnerStatus] = []
        self.database_error = "it was not asked yet"
        """Why the database does not answer; empty if it does."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        try:
            runners = await self._store.runners()
        except Exception as error:  # noqa: BLE001  # what it cannot do is what it is there to tell
            if not self.database_error:
                log.warning("database.lost", extra={"error": type(error).__name__})
            self.database_error = str(error) if isinstance(error, LongfoldError) else type(error).__name__
            return
        self.database_error = ""
        now_s = self._clock()
        before, self._beats = self._beats, {}
        for runner in runners:
            beat, moved_at_s = before.get(runner.id, (runner.beat, None))
            self._beats[runner.id] = (runner.beat, now_s if runner.beat != beat else moved_at_s)
        self._known = runners
        self.alive = [runner for runner in runners if self._moves(runner.id, now_s)]

    def missing(self) -> list[str]:
        """What stands between a question and its answer; empty if nothing does."""
        if self.database_error:
            return [f"The database does not answer: {self.database_error}"]
        if not self.alive:
            return [self._why_none_is_alive()]
        if not any(runner.ready for runner in self.alive):
            return [f"The runner is not ready: {runner.message}" for runner in self.alive]
        return []

    def _why_none_is_alive(self) -> str:
        if self._clock() - self._began_s < STANDS_STILL_S:
            return "No runner was heard of yet; the gateway itself has only just started."
        last = max(self._known, key=lambda runner: runner.since_unix_s, default=None)
        words = f"the last one said: {last.message}. " if last else ""
        return f"No runner is alive; {words}`longfold serve` starts one, or start `longfold runner`."

    def _moves(self, runner_id: str, now_s: float) -> bool:
        moved_at_s = self._beats[runner_id][1]
        return moved_at_s is not None and now_s - moved_at_s < STANDS_STILL_S


class RunnerReadiness(BaseModel):
    ready: bool
    since: float
    """When it became ready, or ceased to be; in Unix seconds of the runner's machine."""
    message: str
    model: str
    replicas: int


class Readiness(BaseModel):
    """`missing` says what stands between a question and its answer."""

    status: Literal["ready", "not ready"]
    missing: list[str]
    runners: list[RunnerReadiness]


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness, "description": "Not ready"}})
async def readyz(request: Request, gateway: CurrentGateway) -> Response:
    """200 if a question asked now would be answered; else 503, and `missing` says why not."""
    watch: RunnerWatch = request.app.state.runners
    missing = ["The gateway is stopping."] if gateway.stopping.is_set() else watch.missing()
    if shutil.disk_usage(gateway.settings.state_dir).free < ROOM_BYTES:
        # A runner that can write nothing seems to be dead, so this comes first.
        missing = [f"The disk of {gateway.settings.state_dir} is full; jobs wait until there is room.", *missing]
    body = Readiness(
        status="not ready" if missing else "ready",
        missing=missing,
        runners=[
            RunnerReadiness(
                ready=runner.ready,
                since=round(runner.since_unix_s, 3),
                message=runner.message,
                model=runner.model,
                replicas=len(runner.replicas),
            )
            for runner in watch.alive
        ],
    )
    return JSONResponse(body.model_dump(), 503 if missing else 200, {"retry-after": "5"} if missing else None)
