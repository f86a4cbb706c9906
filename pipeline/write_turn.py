"""One writer of a SQLite file at a time, over all processes, each in its turn.

SQLite's own waiting is polling without order: beside a busy writer another process may starve. And the SQLite versions
that distributions ship can lose a WAL's content when two connections write or checkpoint it in the same instant
(sqlite.org/wal.html#walresetbug), which cannot happen here. The kernel lets a turn go when its process dies.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

_POLL_S = 0.002


class WriteTurn:
    """Of one SQLite file, for one user at a time in this process. Two lock files beside it: who writes, who is next."""

    def __init__(self, database: Path) -> None:
        """Raises OSError if the lock files cannot be made."""
        self._turn = _open(database.with_name(f"{database.name}-turn"))
        self._next = _open(database.with_name(f"{database.name}-next"))
        self._is_next = False

    async def acquire(self, *, within_s: float) -> bool:
        """Wait for the turn; False if it did not come."""
        until_s = time.monotonic() + within_s
        try:
            while not self._try():
                if time.monotonic() >= until_s:
                    return False
                await asyncio.sleep(_POLL_S)
        finally:
            self._stop_waiting()
        return True

    def acquire_blocking(self, *, within_s: float) -> bool:
        """The same for code that does not wait for anything else meanwhile."""
        until_s = time.monotonic() + within_s
        try:
            while not self._try():
                if time.monotonic() >= until_s:
                    return False
                time.sleep(_POLL_S)
        finally:
            self._stop_waiting()
        return True

    def release(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._turn)
        os.close(self._next)

    def _try(self) -> bool:
        # Whoever has just written must become the next one again, and cannot while another process is.
        self._is_next = self._is_next or _lock(self._next)
        return self._is_next and _lock(self._turn)

    def _stop_waiting(self) -> None:
        if self._is_next:
            fcntl.flock(self._next, fcntl.LOCK_UN)
            self._is_next = False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
