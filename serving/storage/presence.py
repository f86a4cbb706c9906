"""Which processes live, told by the kernel: each holds the lock of a file named after it, and loses it by dying."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from ulid import ULID

_FRESH_S = 3600.0


class Presence:
    """This process among those that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = -1
        self._id = ""

    @property
    def id(self) -> str:
        """Names this process; from the first use on it is seen to live. Raises OSError if its file cannot be made."""
        if not self._id:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = str(ULID())
            self._lock = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._id = name
        return self._id

    def sweep(self) -> None:
        """Remove the files of the dead. A fresh one may be about to be locked."""
        for file in self._folder.glob("*"):
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > _FRESH_S:
                    self.lives(file.name)

    def close(self) -> None:
        if self._id:
            (self._folder / self._id).unlink(missing_ok=True)
            os.close(self._lock)
            self._id = ""

    def lives(self, process_id: str) -> bool:
        """Whether a process of this id holds its lock; the file of one that does not is removed."""
        if process_id and process_id == self._id:
            return True
        if not process_id:
            return False
        try:
            file = os.open(self._folder / process_id, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self._folder / process_id).unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False
