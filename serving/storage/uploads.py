"""A stream of bytes to a file on the disk, with the limit enforced while it comes in."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import UploadTooLarge
from serving.storage.stored_text import full_disk_told

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came."""

    size_bytes: int
    sha256: str


async def receive_upload(chunks: AsyncIterator[bytes], path: Path, *, max_bytes: int) -> Received:
    """Write `chunks` to the new file `path` and bring it to the disk; memory stays at about one piece.

    Raises UploadTooLarge as soon as the limit is passed, and OutOfDisk. The file is then the caller's to remove.
    """
    digest = hashlib.sha256()
    size_bytes = 0
    waiting = bytearray()
    with full_disk_told():
        file = await asyncio.to_thread(path.open, "xb", 0)
    try:
        async for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > max_bytes:
                raise UploadTooLarge(
                    f"The upload is larger than {max_bytes >> 20} MiB, the limit of this server; split it."
                )
            waiting += chunk
            if len(waiting) >= _PIECE_BYTES:
                await asyncio.to_thread(_write, file, bytes(waiting), digest)
                waiting.clear()
        await asyncio.to_thread(_write, file, bytes(waiting), digest)
        with full_disk_told():
            await asyncio.to_thread(os.fsync, file.fileno())
    finally:
        file.close()
    return Received(size_bytes=size_bytes, sha256=digest.hexdigest())


def _write(file: BinaryIO, piece: bytes, digest: Any) -> None:
    """All of `piece`: an unbuffered file may take a part of it when the disk is nearly full."""
    digest.update(piece)
    rest = memoryview(piece)
    with full_disk_told():
        while rest:
            rest = rest[file.write(rest) :]
