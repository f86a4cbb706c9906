"""Keeps a runner's process alive: Ray ends its driver when the cluster dies, memory may run out, code may hang.

A runner that ends is started again, after a pause that grows while it keeps ending early. One that hangs is killed
first: it beats on a pipe, once a second, from the loop that does its work. What a dead runner held goes back to the
queue at once. A runner is stopped by SIGTERM, and ends by itself when its parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pipeline.errors import CallerError, LongfoldError, SettingInvalid

_LOG = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between a runner's end and the next start; the last one repeats."""
SOUND_S = 60.0
"""A runner that lived so long had started well: the next pause is the shortest again."""
STOP_S = 12.0
"""What a runner has for giving its jobs back; then it is killed."""
BEAT_S = 1.0
SILENCE_S = 15.0
"""Without a beat for so long, a runner is killed. Longer than a lease: other runners have its jobs by then."""
FIRST_BEAT_S = 120.0
"""Imports come before the first beat; on a slow disk they take a minute."""
_SUSPECT_S = 5.0
"""Without a beat for so long, a runner is no longer called ready."""
_MAX_PER_LOOK_S = 2 * BEAT_S
"""Time between two looks counts up to here: a parent that was itself stopped cannot tell that its child was."""


class Supervisor:
    """Runs `command` as a child, again and again, until stopped. It gets `--beat-fd N` as its last arguments."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        bury: Callable[[str], Awaitable[object]] | None = None,
        pauses_s: Sequence[float] = PAUSES_S,
        sound_s: float = SOUND_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`bury` is told the id of every runner that has ended."""
        self._command = [*command]
        self._bury = bury
        self._pauses_s = pauses_s
        self._sound_s = sound_s
        self._silence_s = silence_s
        self._child: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._silent_s = 0.0
        self._heard = b""
        """What came through the pipe since the last look."""
        self.runner_id = ""
        """Of the child, as its beats tell; empty until the first one."""
        self.trouble = "is starting"
        """What is the matter with the child, after "The runner"; empty if nothing is."""

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
            self.trouble = "is starting"
            code = await self._live_and_end()
            if self._stopping.is_set():
                return
            sound = time.monotonic() - started_s >= self._sound_s
            if code == CallerError.exit_code and not sound and not ended_early:
                raise SettingInvalid("The runner cannot start as it is set up; its message above says why.")
            ended_early = 0 if sound else ended_early + 1
            pause_s = self._pauses_s[min(ended_early, len(self._pauses_s) - 1)]
            self.trouble = f"ended ({_reason(code)}) and is started again"
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

    async def _live_and_end(self) -> int:
        """One child from its start to its burial; its exit status."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self.runner_id, self._silent_s, self._heard = "", 0.0, b""
        try:
            self._child = await asyncio.create_subprocess_exec(
                *self._command,
                "--beat-fd",
                str(writing),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; we tell the child, once
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        loop.add_reader(reading, self._on_beat, reading)
        watching = asyncio.create_task(self._watch(self._child))
        try:
            code = await self._child.wait()
        finally:
            watching.cancel()
            loop.remove_reader(reading)
            self._on_beat(reading)
            os.close(reading)
        if self._bury is not None and self.runner_id:
            try:
                await self._bury(self.runner_id)
            except LongfoldError as error:  # its leases run out by themselves
                _LOG.warning("runner.not_buried", extra={"error": type(error).__name__})
        return code

    def _on_beat(self, pipe: int) -> None:
        with suppress(BlockingIOError):
            self._heard += os.read(pipe, 65_536)
        *beats, rest = self._heard.split(b"\n")
        if beats:
            self.runner_id = beats[-1].decode("ascii", "replace")
            self._silent_s = 0.0
            self.trouble = ""
        elif not self._heard:  # the child has closed its end
            asyncio.get_running_loop().remove_reader(pipe)
        self._heard = rest

    async def _watch(self, child: asyncio.subprocess.Process) -> None:
        looked_s = time.monotonic()
        while True:
            await asyncio.sleep(min(BEAT_S, self._silence_s / 4))
            now_s = time.monotonic()
            self._silent_s += min(now_s - looked_s, _MAX_PER_LOOK_S)
            looked_s = now_s
            if self.runner_id and self._silent_s >= min(_SUSPECT_S, self._silence_s):
                self.trouble = f"has not answered for {self._silent_s:.0f} s; it is replaced if it stays silent"
            if self._silent_s >= (self._silence_s if self.runner_id else FIRST_BEAT_S):
                _LOG.error("runner.hung", extra={"pid": child.pid, "silent_s": round(self._silent_s, 1)})
                self.trouble = "hung and is replaced"
                _send(child.pid, signal.SIGKILL)
                return


async def beat(pipe: int, runner_id: str) -> None:
    """What the child does: tell its parent, through the pipe, who it is and that its loop runs. Until cancelled."""
    os.set_blocking(pipe, False)
    while True:
        with suppress(BlockingIOError, BrokenPipeError):  # a parent that does not read is no reason to end
            os.write(pipe, f"{runner_id}\n".encode("ascii"))
        await asyncio.sleep(BEAT_S)


def _reason(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
