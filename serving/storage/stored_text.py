"""A document's text as a UTF-8 file, with an index that finds code points without reading what is before them."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.documents.document import Document, Source, Span
from pipeline.errors import InternalError, OutOfDisk

INDEX_STEP_CHARS = 1 << 16
"""The index holds the byte offset of every 65,536th code point, 8 bytes each."""
COUNTED_CHARS = 16 * INDEX_STEP_CHARS
_SAMPLES = 16
_OFFSET = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts:
    """What is known of a stored text without reading it."""

    sha256: str
    characters: int
    sources: tuple[tuple[str, int, int, str], ...]
    """Name, start, end, encoding of each source."""

    def record(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "characters": self.characters, "sources": self.sources}

    @classmethod
    def from_record(cls, raw: Mapping[str, Any]) -> TextFacts:
        sources = tuple((str(n), int(s), int(e), str(c)) for n, s, e, c in raw["sources"])
        return cls(sha256=raw["sha256"], characters=raw["characters"], sources=sources)


def index_path(text_path: Path) -> Path:
    return text_path.with_suffix(".index")


def write_text(document: Document, path: Path) -> TextFacts:
    """Write text and index and bring them to the disk. Raises OutOfDisk; half-written files are the caller's."""
    digest = hashlib.sha256()
    offset = 0
    with full_disk_told(), path.open("wb") as text_file, index_path(path).open("wb") as index_file:
        for start in range(0, len(document.text), INDEX_STEP_CHARS):
            piece = document.text[start : start + INDEX_STEP_CHARS].encode("utf-8")
            index_file.write(_OFFSET.pack(offset))
            text_file.write(piece)
            digest.update(piece)
            offset += len(piece)
        for file in (text_file, index_file):
            file.flush()
            os.fsync(file.fileno())
    sources = tuple((s.name, s.span.start, s.span.end, s.encoding) for s in document.sources)
    return TextFacts(sha256=digest.hexdigest(), characters=len(document.text), sources=sources)


def read_span(path: Path, start: int, end: int) -> str:
    """Code points [start, end), as far as there are so many. Reads at most two index steps more than that."""
    if end <= start or start < 0:
        return ""
    first, last = start // INDEX_STEP_CHARS, (end - 1) // INDEX_STEP_CHARS
    begin_byte, end_byte = _offset_at(path, first), _offset_at(path, last + 1)
    if begin_byte is None:
        return ""
    with path.open("rb") as file:
        file.seek(begin_byte)
        text = file.read(-1 if end_byte is None else end_byte - begin_byte).decode("utf-8")
    skipped = first * INDEX_STEP_CHARS
    return text[start - skipped : end - skipped]


def estimate_tokens(path: Path, characters: int, count: Callable[[str], int]) -> int:
    """Tokens of a stored text: counted up to a million characters; of a longer one, 16 samples are taken for it all.

    Counting reads half a megabyte a second, and an upload is waited for.
    """
    samples, sample_chars = (1, characters) if characters <= COUNTED_CHARS else (_SAMPLES, INDEX_STEP_CHARS)
    starts = [number * characters // samples for number in range(samples)]
    counted = sum(count(read_span(path, start, start + sample_chars)) for start in starts)
    return round(counted * characters / (samples * sample_chars)) if counted else 0


def read_document(path: Path, facts: TextFacts, name: str) -> Document:
    """The whole text as it was stored. Raises InternalError if the file has changed."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != facts.sha256:
        raise InternalError(f"The stored text {path} has changed since it was written; upload the document again.")
    text = data.decode("utf-8")
    sources = facts.sources or ((name, 0, len(text), "utf-8"),)
    return Document(text=text, sources=tuple(Source(name=n, span=Span(s, e), encoding=c) for n, s, e, c in sources))


@contextmanager
def full_disk_told() -> Iterator[None]:
    """Translate a full disk, a quota or a limit on files to OutOfDisk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OutOfDisk("The disk is full; free some space and try again.") from error
        raise


def _offset_at(path: Path, step: int) -> int | None:
    """Byte offset of a step's first code point; None beyond the end."""
    with index_path(path).open("rb") as file:
        file.seek(step * _OFFSET.size)
        packed = file.read(_OFFSET.size)
    return _OFFSET.unpack(packed)[0] if len(packed) == _OFFSET.size else None
