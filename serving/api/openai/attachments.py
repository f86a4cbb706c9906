"""The documents a request names, encloses or spells out, as references to what the store keeps."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Sequence

from pipeline.errors import LongfoldError
from serving.api.errors import ApiError, from_longfold
from serving.api.gateway import Gateway, Principal, find_file
from serving.api.openai.fields import GivenFile
from serving.api.openai.find_document import DocumentQuestion
from serving.api.openai.input import MessagePart
from serving.storage.document_ref import DocumentRef


async def store_attachments(
    found: DocumentQuestion, parts: Sequence[MessagePart], gateway: Gateway, principal: Principal
) -> tuple[DocumentRef, ...]:
    """In the order found. Raises ApiError with `param` for a file that is not there or cannot be read."""
    given = {part.file_key: part for part in parts if part.file}
    documents = []
    for index, key in enumerate(found.files):
        part = given.get(key)
        if part is None:
            documents.append(await _uploaded(key, "longfold.file_ids", gateway, principal))
        elif part.file is not None and part.file.file_id:
            documents.append(await _uploaded(part.file.file_id, part.param, gateway, principal))
        else:
            documents.append(await _enclosed(part, index, gateway))
    for number, text in enumerate(found.texts, start=1):
        name = "text" if len(found.texts) == 1 else f"text {number}"
        documents.append(await gateway.files.add_text(principal.owner, text, name))
    return tuple(documents)


async def _uploaded(file_id: str, param: str, gateway: Gateway, principal: Principal) -> DocumentRef:
    stored = await find_file(gateway, principal, file_id, param)
    if stored.document is None:
        raise ApiError(400, f"The file {stored.id} was uploaded for {stored.purpose!r}, not to be read.", param=param)
    return stored.document


async def _enclosed(part: MessagePart, index: int, gateway: Gateway) -> DocumentRef:
    """A file that came within the request is read for this request; no upload is made of it."""
    assert part.file is not None
    name = part.file.filename or f"file {index + 1}"
    try:
        data = await asyncio.to_thread(decode_file_data, part.file)
    except ValueError:
        raise ApiError(400, f"{part.param}.file_data is not base64.", param=f"{part.param}.file_data") from None
    try:
        return await gateway.files.add_enclosed(name, _once(data))
    except LongfoldError as error:
        raise from_longfold(error, part.param) from error


def decode_file_data(file: GivenFile) -> bytes:
    """The content of base64 text, plain or as a data URL. Raises ValueError if it is neither."""
    text = file.file_data or ""
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise ValueError("a data URL of base64 begins with data:TYPE;base64,")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
