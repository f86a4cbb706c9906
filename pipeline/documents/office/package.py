"""A zip of XML parts, as Word, PowerPoint and Excel write it, opened with distrust.

Every size is checked twice: as the archive's directory declares it, and as it is while unpacking. XML comes as a
stream of tags and text; a document type, without which no entity can be declared, is refused.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import Protocol
from xml.parsers import expat

from pipeline.errors import DocumentUnreadable

MAX_PARTS = 20_000
PART_BYTES = 256 << 20
TOTAL_BYTES = 512 << 20
"""Of the parts that are read, unpacked."""
MAX_RATIO = 300
"""Unpacked to packed; sheets full of equal cells reach 100, bombs 1,000."""
_RATIO_COUNTS_FROM_BYTES = 1 << 20
_DEEPEST = 512
_PIECE_BYTES = 1 << 16


class XmlReader(Protocol):
    """Told a part's tags, without their namespaces, and its text, in their order."""

    def open(self, tag: str, attributes: dict[str, str]) -> None: ...
    def close(self, tag: str) -> None: ...
    def write(self, text: str) -> None: ...


class OfficePackage:
    """The parts of one file. Raises DocumentUnreadable, in words that follow the file's name."""

    def __init__(self, data: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise _damaged(error) from error
        self._parts = {entry.filename: entry for entry in self._archive.infolist()}
        self._left_bytes = TOTAL_BYTES
        if len(self._parts) > MAX_PARTS:
            raise _too_much(f"{len(self._parts):,} parts")
        declared = sum(entry.file_size for name, entry in self._parts.items() if name.endswith((".xml", ".rels")))
        if declared > TOTAL_BYTES:
            raise _too_much(f"{declared >> 20} MiB of XML")

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def read(self, part: str, reader: XmlReader) -> None:
        """Tell `reader` the part's tags and text; a part that is not there tells nothing."""
        if part not in self._parts:
            return
        parser = _make_parser(reader)
        try:
            for piece in self._unpack(self._parts[part]):
                parser.Parse(piece)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise DocumentUnreadable(f"has a part {part} that is not XML ({error}); save it again first.") from error

    def targets(self, part: str) -> dict[str, tuple[str, str]]:
        """The parts that `part` refers to: id → (kind, name). An empty `part` is the package itself."""
        folder, name = posixpath.split(part)
        found = _Relations(folder)
        self.read(posixpath.join(folder, "_rels", f"{name}.rels"), found)
        return found.targets

    def _unpack(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        if entry.flag_bits & 1:
            raise DocumentUnreadable("is encrypted; save a copy without a password first.")
        self._check(entry, entry.file_size)
        unpacked = 0
        try:
            with self._archive.open(entry) as file:
                while piece := file.read(_PIECE_BYTES):
                    unpacked += len(piece)
                    self._left_bytes -= len(piece)
                    self._check(entry, unpacked)
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise _damaged(error) from error

    def _check(self, entry: zipfile.ZipInfo, unpacked_bytes: int) -> None:
        if unpacked_bytes > PART_BYTES or self._left_bytes < 0:
            raise _too_much(f"more than {PART_BYTES >> 20} MiB in {entry.filename[:80]}")
        if unpacked_bytes > max(_RATIO_COUNTS_FROM_BYTES, MAX_RATIO * entry.compress_size):
            raise _too_much(f"{entry.filename[:80]} unpacked to more than {MAX_RATIO} times its size")


def _damaged(error: Exception) -> DocumentUnreadable:
    """NotImplementedError is how `zipfile` refuses a compression or a version of the format that it does not know."""
    return DocumentUnreadable(f"is a damaged Office file ({error}); save it again first.")


def _too_much(what: str) -> DocumentUnreadable:
    return DocumentUnreadable(f"is built like a zip bomb ({what}); convert it to text first.")


def _make_parser(reader: XmlReader) -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    depth = 0

    def open_tag(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise DocumentUnreadable("nests its XML deeper than any Office program does; save it again first.")
        reader.open(_local(name), {_attribute(key): value for key, value in attributes.items()})

    def close_tag(name: str) -> None:
        nonlocal depth
        depth -= 1
        reader.close(_local(name))

    def refuse(*_: object) -> None:
        raise DocumentUnreadable(
            "holds an XML document type, as no Office program writes it; convert it to text first."
        )

    parser.StartElementHandler = open_tag
    parser.EndElementHandler = close_tag
    parser.CharacterDataHandler = reader.write
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    return parser


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _attribute(name: str) -> str:
    """Without its namespace; a relation's id is told apart from an id of another kind."""
    namespace, _, local = name.rpartition(" ")
    return f"r:{local}" if namespace.endswith("/relationships") else local


class _Relations:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.targets: dict[str, tuple[str, str]] = {}

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag != "Relationship" or attributes.get("TargetMode") == "External":
            return
        kind = attributes.get("Type", "").rpartition("/")[2]
        name = posixpath.normpath(posixpath.join("/", self._folder, attributes.get("Target", ""))).lstrip("/")
        self.targets[attributes.get("Id", "")] = (kind, name)

    def close(self, tag: str) -> None: ...

    def write(self, text: str) -> None: ...
