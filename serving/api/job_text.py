"""The text of a job's documents by position, and positions in UTF-16 for those whose strings are made of it.

Offsets count the code points of all documents as one text (`Document.join`: an empty line between two). JavaScript
counts UTF-16 units, of which a character beyond the basic plane takes two; where those stand is counted once per
document, by blocks, and kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from serving.jobs.document_ref import DocumentRef

if TYPE_CHECKING:
    from serving.jobs.file_store import FileStore

Unit = Literal["codepoint", "utf16"]

_SEPARATOR = "\n\n"
_BLOCK_CHARS = 65_536
_KEPT_INDEXES = 64


@dataclass(frozen=True, slots=True)
class _WideIndex:
    """Of one text: how many wide characters stand before each block."""

    before_block: tuple[int, ...]
    characters: int

    @property
    def wide(self) -> int:
        return self.before_block[-1]


class JobText:
    """One per gateway; it keeps the indexes of the documents that were last looked at."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._indexes: OrderedDict[str, _WideIndex] = OrderedDict()

    async def read(self, refs: Sequence[DocumentRef], start: int, end: int) -> str:
        """The code points [start, end) of the joined text; beyond its end there is nothing."""
        parts: list[str] = []
        position = 0
        for ref in refs:
            if position:
                parts.append(_cut(_SEPARATOR, start - position, end - position))
                position += len(_SEPARATOR)
            first, last = max(0, start - position), min(ref.characters, end - position)
            if first < last:
                parts.append(await self._files.read_text(ref, first, last))
            position += ref.characters
        return "".join(parts)

    async def to_utf16(self, refs: Sequence[DocumentRef], offset: int) -> int:
        """UTF-16 units before the code point at `offset`."""
        wide = position = 0
        for ref in refs:
            position += len(_SEPARATOR) if position else 0
            if offset <= position:
                break
            index = await self._index(ref)
            wide += await self._wide_before(ref, index, min(offset - position, ref.characters))
            position += ref.characters
        return offset + wide

    async def from_utf16(self, refs: Sequence[DocumentRef], offset: int) -> int:
        """The code point at a UTF-16 offset; one that falls into a character is that character's."""
        low, high = offset // 2, offset
        while low < high:
            middle = (low + high + 1) // 2
            if await self.to_utf16(refs, middle) <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    async def _wide_before(self, ref: DocumentRef, index: _WideIndex, offset: int) -> int:
        if not index.wide or offset >= index.characters:
            return index.wide
        block = offset // _BLOCK_CHARS
        if index.before_block[block] == index.before_block[block + 1]:
            return index.before_block[block]
        return index.before_block[block] + _count_wide(await self._files.read_text(ref, block * _BLOCK_CHARS, offset))

    async def _index(self, ref: DocumentRef) -> _WideIndex:
        index = self._indexes.get(ref.text_sha256)
        if index is None:
            index = await asyncio.to_thread(_index_text, self._files.text_path(ref))
            self._indexes[ref.text_sha256] = index
            while len(self._indexes) > _KEPT_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(ref.text_sha256)
        return index


def _index_text(path: Path) -> _WideIndex:
    counts, characters = [0], 0
    with path.open(encoding="utf-8", newline="") as text:
        while block := text.read(_BLOCK_CHARS):
            characters += len(block)
            counts.append(counts[-1] + _count_wide(block))
    return _WideIndex(tuple(counts), characters)


def _count_wide(text: str) -> int:
    if text.isascii():
        return 0
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)


def _cut(text: str, start: int, end: int) -> str:
    return text[max(0, start) : max(0, end)]
