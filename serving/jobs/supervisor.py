"""Keeps a runner's process alive: Ray ends its driver's process when the cluster dies, and memory may run out.

A runner that ends is started again, after a pause that grows while it keeps ending early. It is stopped by SIGTERM, and
ends by itself when its parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from pipeline.errors import CallerError, SettingInvalid

_LOG = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between a runner's end and the next start; the last one repeats."""
SOUND_S = 60.0
"""A runner that lived so long had started well: the next pause is the shortest again."""
STOP_S = 12.0
"""What a runner has for giving its jobs back; then it is killed, and its leases run out by themselves."""


class Supervisor:
    """Runs `command` as a child, again and again, until stopped."""

    def __init__(
        self, command: Sequence[str], *, pauses_s: Sequence[float] = PAUSES_S, sound_s: float = SOUND_S
    ) -> None:
        self._command = [*command]
        self._pauses_s = pauses_s
        self._sound_s = sound_s
        self._child: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the child that is alive; None between two."""
        child = self._child
        return child.pid if child is not None and child.returncode is None else None

    async def keep(self) -> None:
        """Return when stopped. Raises SettingInvalid if the child says that no further start will help."""
        ended_early = 0
        while not self._stopping.is_set():
            started_s = time.monotonic()
            self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; we tell the child, once
            )
            code = await self._child.wait()
            if self._stopping.is_set():
                return
            sound = time.monotonic() - started_s >= self._sound_s
            if code == CallerError.exit_code and not sound and not ended_early:
                raise SettingInvalid("The runner cannot start as it is set up; its message above says why.")
            ended_early = 0 if sound else ended_early + 1
            pause_s = self._pauses_s[min(ended_early, len(self._pauses_s) - 1)]
            _LOG.warning("runner.ended", extra={"code": code, "next_start_s": pause_s})
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def stop(self, *, within_s: float = STOP_S) -> None:
        """Let the child give back what it holds and end; return when it is gone."""
        self._stopping.set()
        child = self._child
        if child is None or child.returncode is not None:
            return
        _send(child.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                await child.wait()
        except TimeoutError:
            _LOG.warning("runner.killed", extra={"waited_s": within_s})
            _send(child.pid, signal.SIGKILL)
            await child.wait()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
