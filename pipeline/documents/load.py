"""Files, directories and streams to one `Document`, with the encoding of each source recorded."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from pipeline.documents.decode import Decoded, decode_text, seems_binary
from pipeline.documents.document import Document
from pipeline.documents.sandbox import extract_text
from pipeline.errors import DocumentUnreadable, EmptyDocument

MAX_BYTES = 128 << 20
"""Of one file or of a directory's files together; some 30M tokens, more than most machines read in a day."""
MAX_FILES = 20_000
STDIN = "-"

_Kind = Literal["text", "html", "json", "pdf", "office"]
_KINDS: dict[str, _Kind] = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".pdf": "pdf",
}
_HTML_START = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html[\s>])", re.IGNORECASE | re.DOTALL)
_HTML_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]{2,40})", re.IGNORECASE)

_JSON_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_JSON_ESCAPES = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u(?!00[0-9])[0-9a-fA-F]{4})+)")
_LONG_LINE_CHARS = 2000
_RECORD_CHARS = 200
"""A JSON object or list up to this length stays on one line."""
_DEEPEST_INDENT = 8


def load_documents(
    paths: Sequence[str | Path],
    stdin: BinaryIO | None = None,
    *,
    warn: Callable[[str], None] = lambda _: None,
) -> Document:
    """One document of all `paths`, in their order: files, directories (sorted, recursive), `-` for `stdin`.

    Raises DocumentUnreadable or EmptyDocument naming the path. What a directory holds that is hidden, binary or
    empty is skipped and named in one `warn`.
    """
    documents: list[Document] = []
    for path in paths:
        if str(path) == STDIN:
            documents.append(_load_stdin(stdin))
            stdin = None
        elif Path(path).is_dir():
            documents.append(_load_directory(Path(path), warn))
        else:
            documents.append(load_bytes(_read_file(Path(path)), str(path)))
    if not documents:
        raise EmptyDocument("No document was given; name a file, a directory, or - for standard input.")
    return documents[0] if len(documents) == 1 else Document.join(documents)


def load_bytes(data: bytes, name: str) -> Document:
    """A document of one file's bytes; its kind is told by the name's ending and by how the bytes begin."""
    kind = _kind_of(data, name)
    if kind == "pdf":
        pages = extract_text("pdf", data, name)
        return Document.join([Document.from_text(page.text, f"{name}, {page.label}", "PDF") for page in pages])
    if kind == "office":
        parts = extract_text("office", data, name)
        labels = [f"{name}, {part.label}" if part.label else name for part in parts]
        documents = zip(parts, labels, strict=True)
        return Document.join([Document.from_text(part.text, label, "Office") for part, label in documents])
    declared = _HTML_CHARSET.search(data[:4096]) if kind == "html" else None
    decoded = decode_text(data, name, declared.group(1).decode("ascii", "ignore") if declared else "")
    if kind == "html":
        [page] = extract_text("html", decoded.text.encode("utf-8", "replace"), name)
        decoded = Decoded(page.text, f"{decoded.encoding}, HTML")
    elif kind == "json":
        decoded = _readable_json(decoded)
    if not decoded.text.strip():
        raise EmptyDocument(f"{name} holds no text; there is nothing to ask about.")
    return Document.from_text(decoded.text, name, decoded.encoding)


def _kind_of(data: bytes, name: str) -> _Kind:
    if data.startswith(b"%PDF-"):
        return "pdf"
    if data.startswith(b"PK\x03\x04") and b"[Content_Types].xml" in data:
        return "office"
    kind = _KINDS.get(Path(name).suffix.lower(), "text")
    if kind == "text" and _HTML_START.match(data[:4096]):
        return "html"
    return kind


def _read_file(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise DocumentUnreadable(f"{path} is a device, not a file.")
        with path.open("rb") as file:
            return _read_limited(file, str(path))
    except FileNotFoundError:
        raise DocumentUnreadable(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise DocumentUnreadable(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from error


def _read_limited(file: BinaryIO, name: str, limit_bytes: int = MAX_BYTES) -> bytes:
    data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise DocumentUnreadable(f"{name} is larger than {limit_bytes >> 20} MiB; split it and ask about a part.")
    return data


def _load_stdin(stdin: BinaryIO | None) -> Document:
    if stdin is None:
        raise DocumentUnreadable("Standard input was asked for, but there is none, or it was read already.")
    return load_bytes(_read_limited(stdin, "standard input"), "standard input")


def _load_directory(directory: Path, warn: Callable[[str], None]) -> Document:
    documents: list[Document] = []
    skipped: list[str] = []
    left_bytes = MAX_BYTES
    for path in _files_below(directory, skipped):
        left_bytes -= path.stat().st_size
        if left_bytes < 0 or len(documents) >= MAX_FILES:
            raise DocumentUnreadable(
                f"{directory} holds more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files; ask about a part of it."
            )
        loaded = _load_or_skip(path)
        if isinstance(loaded, Document):
            documents.append(loaded)
        else:
            skipped.append(f"{path.relative_to(directory)} ({loaded})")
    if skipped:
        warn(f"Skipped in {directory}: {_list_some(skipped)}.")
    if not documents:
        raise EmptyDocument(f"{directory} holds no file with text.")
    return Document.join(documents)


def _load_or_skip(path: Path) -> Document | str:
    """The document, or in a few words why there is none."""
    try:
        data = _read_file(path)
    except DocumentUnreadable:
        return "cannot be read"
    try:
        return load_bytes(data, str(path))
    except EmptyDocument:
        return "empty"
    except DocumentUnreadable:
        return seems_binary(data) or "unreadable"


def _files_below(directory: Path, skipped: list[str], root: Path | None = None) -> Iterator[Path]:
    """Regular files in the order of their names, depth first; links are not followed, so there are no loops."""
    root = root or directory
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DocumentUnreadable(f"{directory} cannot be read: {error.strerror}.") from error
    for entry in entries:
        if entry.name.startswith("."):
            skipped.append(f"{entry.relative_to(root)} (hidden)")
        elif entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
            skipped.append(f"{entry.relative_to(root)} (a link or device)")
        elif entry.is_dir():
            yield from _files_below(entry, skipped, root)
        else:
            yield entry


def _list_some(names: list[str], max_shown: int = 10) -> str:
    more = f" and {len(names) - max_shown} more" if len(names) > max_shown else ""
    return ", ".join(names[:max_shown]) + more


def _readable_json(decoded: Decoded) -> Decoded:
    """Keep the JSON as it stands, but break very long lines between values, and write out escaped letters.

    The result is JSON of the same meaning, wherever the input was JSON; nothing of other text is lost either.
    """
    text, written_out = _JSON_ESCAPES.subn(_write_out, decoded.text)
    note = ", escapes written out" if written_out else ""
    if len(text) > _LONG_LINE_CHARS and "\n" not in text.strip():
        text, note = _break_json_line(text), note + ", broken into lines"
    return Decoded(text, decoded.encoding + note)


def _write_out(match: re.Match[str]) -> str:
    r"""`\u4e2d` to its character; a surrogate that lacks its other half stays an escape."""
    escapes = match.group(2)
    units = bytes.fromhex(escapes.replace("\\u", ""))
    try:
        return match.group(1) + units.decode("utf-16-be")
    except UnicodeDecodeError:
        return match.group(0)


def _break_json_line(text: str) -> str:
    """Put the values of every long object or list on lines of their own, changing white space outside strings only."""
    marks = [m.start() for m in _JSON_MARK.finditer(text) if text[m.start()] != '"']
    is_long = _long_containers(text, marks)
    lines: list[str] = []
    begin = 0
    open_long = [True]
    for mark in marks:
        if text[mark] in "[{":
            open_long.append(is_long[mark])
        elif text[mark] in "]}" and len(open_long) > 1:
            open_long.pop()
        if text[mark] not in "]}" and open_long[-1]:
            lines.append(text[begin : mark + 1])
            lines.append("\n" + " " * min(len(open_long) - 1, _DEEPEST_INDENT))
            begin = mark + 1 + (text[mark + 1 : mark + 2] == " ")
    lines.append(text[begin:])
    return "".join(lines)


def _long_containers(text: str, marks: list[int]) -> dict[int, bool]:
    """For the position of each opening bracket: whether its object or list is too long for one line."""
    is_long: dict[int, bool] = {}
    opened: list[int] = []
    for mark in marks:
        if text[mark] in "[{":
            opened.append(mark)
            is_long[mark] = True
        elif text[mark] in "]}" and opened:
            start = opened.pop()
            is_long[start] = mark - start > _RECORD_CHARS
    return is_long
