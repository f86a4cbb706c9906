"""A whole installation over HTTP: the gateway and a runner on a scripted model, in a thread with a loop of its own.

python -m tests.api.server FOLDER [OPTIONS]     `longfold serve` on the settings in the environment, with the runner of
                                                `tests.api.rig` for its child, to be killed or stopped
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.llm.scripted import ScriptedModel
from serving.api import clients
from serving.api.app import begin_stop, create_app
from serving.api.gateway import Gateway
from serving.api.http_server import make_server
from serving.cli.serve import listen, open_gateway, serve
from serving.jobs.job import Lane
from serving.session import OpenModel
from serving.settings import Settings, load_settings
from tests.api.rig import QUICK, Rig, reader

Value = TypeVar("Value")


class OnLoop:
    """An object of another thread's loop: its coroutines run there, and can be awaited on any loop."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def there(*args: Any, **fields: Any) -> Any:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(found(*args, **fields), self._loop))

        return there


@dataclass(kw_only=True)
class Server:
    """What a test sees of it."""

    url: str
    folder: Path
    model: ScriptedModel
    """Its `script` may be replaced."""
    open_model: OpenModel
    store: Any
    """A `JobStore` on the server's loop."""
    files: Any
    """A `FileStore` on the server's loop."""
    gateway: Gateway
    loop: asyncio.AbstractEventLoop

    def do(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the server's loop and wait for it: for tests that are not async themselves."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30.0)

    def make_key(self, name: str = "test", **fields: Any) -> str:
        """The secret of a new key. From the first one on, requests without a key are refused."""
        _, secret = self.do(self.gateway.keys.create(name=name, **fields))
        return secret


@contextmanager
def running_server(folder: Path, model: ScriptedModel | None = None, **settings: Any) -> Iterator[Server]:
    """Serve until the context ends; `settings` replace fields of `Settings`."""
    started: list[Server] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []
    failed: list[BaseException] = []

    async def live() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with _serving(folder, model or ScriptedModel(reader()), settings) as server:
            started.append(server)
            stop.append(lambda: loop.call_soon_threadsafe(stopping.set))
            ready.set()
            await stopping.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001  # raised where the test waits
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    ready.wait(30.0)
    try:
        if started:
            yield started[0]
    finally:
        for end in stop:
            end()
        thread.join(30.0)
    if failed:
        raise failed[0]


@asynccontextmanager
async def _serving(folder: Path, model: ScriptedModel, fields: dict[str, Any]) -> AsyncIterator[Server]:
    rig = await Rig.open(folder)
    settings = Settings(
        state_dir=folder,
        cache_dir=folder / "cache",
        model=str(folder / "model"),
        **({"long_jobs": 2, "short_jobs": 4} | fields),
    )
    gateway = await open_gateway(settings, rig.database, rig.model)
    runner = rig.runner(model, pace=QUICK, places={Lane.LONG: settings.long_jobs, Lane.SHORT: settings.short_jobs})
    server = make_server(create_app(gateway), shutdown_timeout_s=2)
    with listen("127.0.0.1", 0) as listening:
        running = asyncio.create_task(runner.run())
        serving = asyncio.create_task(server.serve([listening]))
        while not server.started:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        try:
            yield Server(
                url=f"http://127.0.0.1:{listening.getsockname()[1]}",
                folder=folder,
                model=model,
                open_model=rig.model,
                store=OnLoop(gateway.store, loop),
                files=OnLoop(gateway.files, loop),
                gateway=gateway,
                loop=loop,
            )
        finally:
            begin_stop(gateway)
            server.should_exit = True
            await serving
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await rig.database.close()


def main() -> None:
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    clients.RETURN_S = options.pop("return_s", clients.RETURN_S)
    command = [sys.executable, "-m", "tests.api.rig", sys.argv[1], json.dumps(options | {"parent_pid": os.getpid()})]
    asyncio.run(serve(load_settings(), command, lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
