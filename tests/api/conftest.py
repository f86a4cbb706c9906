"""A running installation for every test here, on a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serving.jobs.runner import JobRunner
from tests.api.rig import Rig
from tests.api.server import Server, running_server
from tests.tiny_model import make_chat_model

Start = Callable[[JobRunner], "asyncio.Task[None]"]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    opened = await Rig.open(tmp_path)
    yield opened
    await opened.database.close()


@pytest.fixture
async def start(rig: Rig) -> AsyncIterator[Start]:
    """Starts runners in this process; stops them in the end."""
    running: list[asyncio.Task[None]] = []

    def begin(runner: JobRunner) -> asyncio.Task[None]:
        running.append(asyncio.create_task(runner.run()))
        return running[-1]

    yield begin
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Gateway and runner over HTTP, on a model that reads `tests.api.rig.story`."""
    with running_server(tmp_path) as running:
        yield running


@dataclass(frozen=True)
class ServeProcess:
    """`longfold serve` in a process of its own, with the runner of `tests.api.rig` for its child."""

    process: subprocess.Popen[str]
    url: str
    folder: Path

    def end(self, number: signal.Signals = signal.SIGTERM, *, within_s: float = 25.0) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(within_s)


StartServe = Callable[..., ServeProcess]


@pytest.fixture
def start_serve(tmp_path: Path) -> Iterator[StartServe]:
    """Starts servers on one folder, one after another or side by side; kills what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def begin(*, port: int = 0, environment: Mapping[str, str] | None = None, **options: Any) -> ServeProcess:
        if not (tmp_path / "model").exists():
            make_chat_model(tmp_path / "model")
        settings = {
            "LONGFOLD_STATE_DIR": str(tmp_path),
            "LONGFOLD_CACHE_DIR": str(tmp_path / "cache"),
            "LONGFOLD_MODEL": str(tmp_path / "model"),
            "LONGFOLD_PORT": str(port),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.api.server", str(tmp_path), json.dumps(options)],
            env=os.environ | settings | dict(environment or {}),
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        assert process.stdout is not None
        line = next((line for line in process.stdout if "listens on" in line), "")
        assert line, f"the server ended with {process.wait()}"
        return ServeProcess(process, line.split()[-1], tmp_path)

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_running(pid: int) -> bool:
    """Whether a process is alive; one that nobody has waited for yet is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status != "Z"
