"""A form with one file, taken apart while it arrives: at no time is more of it in memory than one network read.

Starlette's own form parser writes the whole file to a temporary place first; here its bytes go straight on to the
store, which stops reading at the limit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serving.api.errors import ApiError

_LONGEST_FIELD_BYTES = 4096
_MAX_FIELDS = 16
_LONGEST_NAME_CHARS = 255


@dataclass(kw_only=True)
class Upload:
    """What came before the file, and the file's bytes; fields that come after it are added when `chunks` ends."""

    fields: dict[str, str]
    name: str
    media_type: str
    chunks: AsyncIterator[bytes]


@dataclass
class _Part:
    headers: dict[str, bytes] = field(default_factory=dict)
    name: str = ""
    file_name: str | None = None
    value: bytearray = field(default_factory=bytearray)


class _Form:
    """Callbacks of the parser; the file's bytes collect in `pending` until they are taken."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise ApiError(415, "Send the file as multipart/form-data, in the part `file`.", "unsupported_media_type")
        self.fields: dict[str, str] = {}
        self.file: _Part | None = None
        self.pending: list[bytes] = []
        self.file_ended = False
        self.ended = False
        self._part = _Part()
        self._header = bytearray(), bytearray()
        names = ("part_begin", "part_data", "part_end", "header_field", "header_value", "header_end")
        callbacks: Any = {f"on_{name}": getattr(self, f"_{name}") for name in (*names, "headers_finished", "end")}
        self.parser = MultipartParser(options[b"boundary"], callbacks)

    def feed(self, data: bytes) -> None:
        try:
            self.parser.write(data)
        except FormParserError as error:
            raise ApiError(400, "The body is not well-formed multipart/form-data.", "invalid_multipart") from error

    def _part_begin(self) -> None:
        self._part = _Part()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        self._part.headers[name.decode("latin-1").lower()] = bytes(value)
        self._header = bytearray(), bytearray()

    def _headers_finished(self) -> None:
        part = self._part
        _, options = parse_options_header(part.headers.get("content-disposition", b""))
        part.name = _decode(options.get(b"name", b""))
        if b"filename" not in options:
            return
        part.file_name = _decode(options[b"filename"])
        if part.name != "file":
            raise ApiError(400, "The file's part is called `file`.", "unknown_parameter", _shown(part.name))
        if self.file is not None:
            raise ApiError(400, "Send one file at a time.", "too_many_files", "file")
        self.file = part

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._part.file_name is not None:
            self.pending.append(data[start:end])
            return
        self._part.value += data[start:end]
        if len(self._part.value) > _LONGEST_FIELD_BYTES:
            raise ApiError(400, "The field is too long.", "field_too_long", _shown(self._part.name))

    def _part_end(self) -> None:
        if self._part.file_name is not None:
            self.file_ended = True
            return
        self.fields[self._part.name] = _decode(bytes(self._part.value))
        if len(self.fields) > _MAX_FIELDS:
            raise ApiError(400, "The form has too many fields.", "too_many_fields")

    def _end(self) -> None:
        self.ended = True


async def read_upload(request: Request) -> Upload:
    """Read up to the file's first byte. Raises ApiError for what is not a form with a file."""
    form = _Form(request.headers.get("content-type", ""))
    body = request.stream()
    while form.file is None:
        data = await anext(body, None)
        if data is None:
            raise ApiError(400, "The form has no part `file`.", "missing_file", "file")
        form.feed(data)
    media_type = form.file.headers.get("content-type", b"application/octet-stream").decode("latin-1")
    return Upload(
        fields=form.fields, name=_shown(form.file.file_name or ""), media_type=media_type, chunks=_chunks(form, body)
    )


async def _chunks(form: _Form, body: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    while True:
        taken, form.pending = form.pending, []
        for chunk in taken:
            yield chunk
        data = await anext(body, None)
        if data is None:
            break
        form.feed(data)
    if not form.ended:
        raise ApiError(400, "The upload broke off before its end.", "incomplete_upload", "file")


def _shown(name: str) -> str:
    """The name without folders and control characters; it is shown, never used as a path."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return "".join(character for character in last if character.isprintable())[:_LONGEST_NAME_CHARS] or "file"


def _decode(value: bytes) -> str:
    return value.decode("utf-8", "replace")
