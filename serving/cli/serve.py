"""`longfold serve`: the gateway in this process, the runner in a child, and both stopped in the right order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from pipeline.errors import SettingInvalid
from serving.api.app import begin_stop, create_app
from serving.api.gateway import Gateway
from serving.api.http_server import make_server
from serving.api.stream.feed import EventFeed
from serving.cluster import ownership
from serving.jobs.store import JobStore
from serving.jobs.supervisor import Supervisor
from serving.logging import configure_json_log
from serving.session import OpenModel, SpeedBook, resolve_model
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.keys import KeyStore
from serving.storage.migrate import prepare_database

Report = Callable[[str], None]

CONNECTIONS_S = 5
"""What open connections have for ending by themselves; event streams end at once and are resumed by their clients."""
CLUSTER_S = 20.0
_BACKLOG = 2048


def run_serve(settings: Settings, report: Report) -> None:
    """Serve until SIGTERM or SIGINT. Raises what prevents the start."""
    configure_json_log(settings.log_level)
    asyncio.run(serve(settings, runner_command(settings), report))


def runner_command(settings: Settings) -> list[str]:
    """The child has the environment and the file from us, and needs only what the command line may have named."""
    model = ["--model", settings.model] if settings.model else []
    return [sys.executable, "-m", "serving", "runner", "--parent", str(os.getpid()), *model]


async def serve(settings: Settings, command: list[str], report: Report) -> None:
    """The gateway here, and `command` as the runner; returns when both have ended."""
    database = Database.open(settings.database)
    try:
        await prepare_database(database)
        model = await asyncio.to_thread(resolve_model, settings, report)
        gateway = await open_gateway(settings, database, model)
        await asyncio.to_thread(ownership.take_over, settings, os.getpid())
        with listen(settings.host, settings.port) as listening:
            gateway.runner = Supervisor(command, bury=gateway.store.bury_runner)
            await _serve_until_stopped(gateway, gateway.runner, listening, report)
    finally:
        await asyncio.to_thread(ownership.stop, settings, os.getpid())
        await database.close()


async def open_gateway(settings: Settings, database: Database, model: OpenModel) -> Gateway:
    """Everything that the routes work with. Raises SettingInvalid for a public address without a key."""
    store, keys = JobStore(database), KeyStore(database, settings.state_dir)
    loopback_only = is_loopback(settings.host)
    if not loopback_only and not await keys.any_keys():
        raise SettingInvalid(
            f"Without a key, only this machine is served, and LONGFOLD_HOST is {settings.host}. "
            "Create a key first: `longfold keys create NAME`."
        )
    return Gateway(
        settings=settings,
        store=store,
        files=FileStore(
            database,
            settings.files_dir,
            max_bytes=settings.max_upload_mib << 20,
            count_tokens=model.tokenizer.count,
        ),
        keys=keys,
        feed=EventFeed(store),
        model=model,
        speeds=SpeedBook(settings.cache_dir),
        loopback_only=loopback_only,
    )


async def _serve_until_stopped(
    gateway: Gateway, supervisor: Supervisor, listening: socket.socket, report: Report
) -> None:
    server = make_server(create_app(gateway), shutdown_timeout_s=CONNECTIONS_S)

    stopped = asyncio.Event()

    def stop() -> None:
        """Nothing new is admitted from here on; what is open gets a few seconds."""
        server.should_exit = True
        begin_stop(gateway)
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    host, port = listening.getsockname()[:2]
    report(f"Longfold listens on http://{f'[{host}]' if ':' in host else host}:{port}")
    serving = asyncio.ensure_future(server.serve([listening]))
    keeping = asyncio.ensure_future(supervisor.keep())
    keeping.add_done_callback(lambda _: stop())  # it ends by itself only if no start can succeed
    serving.add_done_callback(lambda _: stop())
    await stopped.wait()
    await asyncio.gather(supervisor.stop(), serving)
    await keeping


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises SettingInvalid if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingInvalid(
            f"Nothing can listen on {host}, port {port} ({error.strerror or error}); "
            "set LONGFOLD_HOST and LONGFOLD_PORT."
        ) from error
    with listening:
        # Accepted sockets inherit it. asyncio sets it only on sockets made with an explicit protocol; without it each
        # answer of two writes waits 40 ms for the client's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listening


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
