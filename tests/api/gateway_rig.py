"""A gateway over real HTTP on a real SQLite file, and a runner that does what the test says, step by step."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from serving.api.app import begin_stop, create_app
from serving.api.gateway import Gateway
from serving.api.http_server import GatewayServer, make_server
from serving.api.stream.feed import EventFeed
from serving.jobs.job import Claim, JobState, Lane, NewEvent, RunnerStatus
from serving.jobs.store import JobStore, LeaseWatch
from serving.models.profile import load_profile
from serving.session import OpenModel, SpeedBook
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.keys import KeyStore
from serving.storage.migrate import prepare_database
from tests.tiny_model import make_chat_model

_empty_database = b""
TEXT = "The door of the house is green.\n\nThe roof is red.\n"


@dataclass(kw_only=True)
class Rig:
    """`client` sends without a key."""

    url: str
    app: FastAPI
    gateway: Gateway
    database: Database
    folder: Path
    client: httpx2.AsyncClient
    server: GatewayServer

    @property
    def store(self) -> JobStore:
        return self.gateway.store

    async def make_key(self, name: str = "test", **fields: Any) -> dict[str, str]:
        """The headers that carry a new key."""
        _, secret = await self.gateway.keys.create(name=name, **fields)
        return {"authorization": f"Bearer {secret}"}

    async def submit(self, headers: Mapping[str, str] | None = None, **fields: Any) -> str:
        """Submit a job over HTTP; its bare id."""
        body = {"question": "Which colour is the door?", "text": TEXT} | fields
        answer = await self.client.post("/v1/jobs", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"]).removeprefix("job_")

    async def claim(self) -> Claim:
        """Take the oldest queued job as a runner does."""
        watch = LeaseWatch()
        for lane in Lane:
            if claim := await self.store.claim("hand", lane, watch):
                return claim
        raise AssertionError("no job is queued")

    async def tell(self, claim: Claim, count: int, *, first: int = 0) -> None:
        """Append `count` warnings that are numbered from `first`."""
        events = [NewEvent(kind="warning", data={"message": f"w{n}"}) for n in range(first, first + count)]
        await self.store.append(claim, events)

    async def finish(self, claim: Claim, state: JobState = JobState.COMPLETED, **fields: Any) -> None:
        result = {"answer": "green", "found": True, "evidence": [], "conflicts": []} if state == "completed" else None
        await self.store.finish(claim, state, **({"result": result} | fields))

    async def beat(self, number: int, *, ready: bool = True) -> None:
        """Report as a runner."""
        status = RunnerStatus(
            id="hand",
            pid=1,
            beat=number,
            ready=ready,
            message="warming up",
            model="tiny",
            model_fingerprint="f",
            context_tokens=8192,
            replicas=({"tokens_per_s": 10.0, "progress": {"idle_s": 1.5, "kv_usage": 0.25}},),
        )
        await self.store.report_runner(status)


@asynccontextmanager
async def running_gateway(
    folder: Path, *, max_upload_bytes: int = 4 << 20, loopback_only: bool = True
) -> AsyncIterator[Rig]:
    """Serve from `folder` until the context ends."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    database = await _open_database(state / "longfold.sqlite")
    model_path = folder / "model"
    if not model_path.exists():
        make_chat_model(model_path)
    store = JobStore(database)
    model = OpenModel(load_profile(model_path, context_tokens=8192))
    count_tokens = model.tokenizer.count
    gateway = Gateway(
        settings=Settings(state_dir=state, cache_dir=folder / "cache"),
        store=store,
        files=FileStore(database, state / "files", max_bytes=max_upload_bytes, count_tokens=count_tokens),
        keys=KeyStore(database, state),
        feed=EventFeed(store),
        model=model,
        speeds=SpeedBook(folder / "cache"),
        loopback_only=loopback_only,
    )
    app = create_app(gateway)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does not for such a socket
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = make_server(app, shutdown_timeout_s=2)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.01)
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=url, timeout=20, limits=limits) as client:
            yield Rig(url=url, app=app, gateway=gateway, database=database, folder=folder, client=client, server=server)
    finally:
        begin_stop(gateway)
        server.should_exit = True
        await serving
        await database.close()


async def _open_database(path: Path) -> Database:
    """A new one is a copy of the first that was made: the migrations take a second."""
    global _empty_database  # noqa: PLW0603
    if not path.exists() and _empty_database:
        path.write_bytes(_empty_database)
    database = Database.open(f"sqlite:///{path}")
    await prepare_database(database)
    if not _empty_database:
        await database.close()  # which brings everything from the WAL into the file
        _empty_database = path.read_bytes()
        database = Database.open(f"sqlite:///{path}")
    return database


@dataclass(frozen=True)
class SseEvent:
    id: int
    kind: str
    data: str


async def read_events(answer: httpx2.Response, *, at_most: int | None = None) -> list[SseEvent]:
    """The events of an open stream, until it ends or `at_most` were read."""
    events: list[SseEvent] = []
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            events.append(SseEvent(int(fields.get("id", 0)), fields.get("event", ""), fields["data"]))
            fields = {}
            if len(events) == at_most:
                break
        else:
            fields = {}
    return events
