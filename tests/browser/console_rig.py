"""A whole installation in this process, for a browser: gateway over HTTP, runner, a scripted model that can be held."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn

from pipeline.llm.model import Call, Completion, Stage
from pipeline.llm.scripted import Script, ScriptedModel
from serving.api.app import begin_stop, create_app
from serving.api.gateway import Gateway
from serving.api.stream.feed import EventFeed
from serving.session import SpeedBook
from serving.settings import Settings
from serving.storage.keys import KeyStore
from tests.api.rig import Rig


class HeldModel(ScriptedModel):
    """Calls for which `holds` is true wait until `release` is called."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.holds: Callable[[Call], bool] = lambda call: False
        self._released = asyncio.Event()

    async def complete(self, call: Call) -> Completion:
        if self.holds(call):
            await self._released.wait()
        return await super().complete(call)

    def hold_maps_after(self, count: int) -> None:
        """Let the run come so far that some chunks are mapped and others wait."""
        maps = itertools.count()
        self.holds = lambda call: call.stage is Stage.MAP and next(maps) >= count

    def release(self) -> None:
        self.holds = lambda call: False
        self._released.set()


class Console:
    """What a test has in hand. The gateway can be stopped and comes back under the same address."""

    def __init__(self, rig: Rig, model: HeldModel) -> None:
        self.rig = rig
        self.model = model
        self.port = 0
        self.loopback_only = True
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start_gateway(self) -> None:
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        state = self.rig.folder / "state"
        state.mkdir(exist_ok=True)
        self.keys = KeyStore(self.rig.database, state)
        self.gateway = Gateway(
            settings=Settings(state_dir=state, cache_dir=self.rig.folder),
            store=self.rig.store,
            files=self.rig.files,
            keys=self.keys,
            feed=EventFeed(self.rig.store),
            model=self.rig.model,
            speeds=SpeedBook(self.rig.folder),
            loopback_only=self.loopback_only,
        )
        config = uvicorn.Config(
            create_app(self.gateway), log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]))
        while not self._server.started:
            assert not self._serving.done(), self._serving.exception()
            await asyncio.sleep(0.01)

    async def stop_gateway(self) -> None:
        if self._serving is None:
            return
        begin_stop(self.gateway)
        self._server.should_exit = True
        await self._serving
        self._serving = None


@asynccontextmanager
async def running_console(folder: Path, script: Script) -> AsyncIterator[Console]:
    """Serve from `folder` until the context ends."""
    rig = await Rig.open(folder)
    model = HeldModel(script)
    console = Console(rig, model)
    runner = asyncio.create_task(rig.runner(model).run())
    await console.start_gateway()
    try:
        yield console
    finally:
        model.release()
        await console.stop_gateway()
        runner.cancel()
        with suppress(asyncio.CancelledError):
            await runner
        await rig.database.close()
