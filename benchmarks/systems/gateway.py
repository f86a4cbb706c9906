"""`longfold serve` in a process of its own, with a folder of its own: what the suites that go over HTTP talk to."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InternalError
from serving.settings import PREFIX

END_S = 90.0
"""The runner gives its jobs back, then the cluster ends."""
LISTEN_S = 600.0
"""A model may have to be brought first."""
_ROOT = Path(__file__).parents[2]
_LOG = "gateway.log"
_LISTENS = "listens on "


@dataclass(frozen=True)
class GatewayProcess:
    """One that is running."""

    url: str
    folder: Path
    pid: int


@contextmanager
def run_gateway(command: Sequence[str], folder: Path, **settings: object) -> Iterator[GatewayProcess]:
    """Run `command`, which is `longfold serve` or takes its place, until the context ends.

    It has the given settings and nothing of this machine's own: neither variables nor a longfold.toml. Ctrl-C is not
    for it: it ends when we do.
    """
    log = folder / _LOG
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command],
            env=_environment(folder, settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield GatewayProcess(_wait_for_url(process, log), folder, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(folder: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """As variables; what is None is not set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    own = {"state_dir": folder / "state", "cache_dir": folder / "cache", "port": 0, **settings}
    variables = {PREFIX + name.upper(): str(value) for name, value in own.items() if value is not None}
    path = os.pathsep.join(filter(None, (str(_ROOT), kept.get("PYTHONPATH"))))
    return kept | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "XDG_CONFIG_HOME": str(folder)} | variables


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Raises InternalError with the last lines that were written if there is none."""
    deadline = time.monotonic() + LISTEN_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text("utf-8", errors="replace").splitlines(keepends=True):
            if _LISTENS in line and line.endswith("\n"):
                return line.split()[-1]
        time.sleep(0.05)
    said = " | ".join(log.read_text("utf-8", errors="replace").splitlines()[-5:])
    raise InternalError(f"The gateway ended with {process.poll()} before it listened: {said}")
