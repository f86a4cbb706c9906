"""Where uploads and texts lie on the disk.

    FOLDER/incoming/<process>/<ulid>    being received or read; it belongs to nobody once the process is dead
    FOLDER/processes/<process>          which of them live
    FOLDER/bytes/ab/<sha256>            as uploaded
    FOLDER/text/ab/<sha256>.txt         as it is asked about, in UTF-8, with .index beside it

Only ULIDs and SHA-256s become paths. A file gets its final name when it is complete and on the disk.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from ulid import ULID

from serving.storage.presence import Presence
from serving.storage.stored_text import full_disk_told, index_path


class BlobFolder:
    """Names, moves and removals; whether something is still needed is for the caller to know."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.presence = Presence(folder / "processes")

    def incoming(self) -> Path:
        """A name that nothing has; `.txt` and `.index` beside it are free too."""
        with full_disk_told():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            mine = self._folder / "incoming" / self.presence.id
            mine.mkdir(parents=True, exist_ok=True)
        return mine / str(ULID())

    def remove_orphans(self) -> int:
        """What processes were receiving when they died; how many files."""
        removed = 0
        for process in (self._folder / "incoming").glob("*/"):
            if process.is_dir() and not self.presence.lives(process.name):
                removed += sum(1 for _ in process.iterdir())
                shutil.rmtree(process, ignore_errors=True)
        self.presence.sweep()
        return removed

    def bytes_path(self, sha256: str) -> Path:
        return self._folder / "bytes" / sha256[:2] / sha256

    def text_path(self, sha256: str) -> Path:
        return self._folder / "text" / sha256[:2] / f"{sha256}.txt"

    def keep_bytes(self, incoming: Path, sha256: str) -> None:
        _move(incoming, self.bytes_path(sha256))

    def keep_text(self, incoming: Path, sha256: str) -> None:
        """`incoming` is the text's path. The index goes first: a text that is there can be searched."""
        target = self.text_path(sha256)
        _move(index_path(incoming), index_path(target))
        _move(incoming, target)

    def older_than(self, unix_s: float) -> list[Path]:
        """Uploads and texts, not the indexes beside them, that were last written before."""
        found = []
        for path in (found for kind in ("incoming", "bytes", "text") for found in (self._folder / kind).glob("**/*")):
            with suppress(FileNotFoundError):
                if path.is_file() and path.suffix != ".index" and path.stat().st_mtime < unix_s:
                    found.append(path)
        return found


def remove_all(path: Path) -> None:
    """The file and what stands beside it under the same name."""
    for leftover in (path, path.with_suffix(".txt"), index_path(path)):
        leftover.unlink(missing_ok=True)


def _move(source: Path, target: Path) -> None:
    with full_disk_told():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
