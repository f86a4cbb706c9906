"""/v1/files: documents that are kept, in the shape of OpenAI's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict
from starlette.requests import ClientDisconnect

from serving.api.auth import require
from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway, Principal, find_file
from serving.api.openai.multipart import Upload, read_upload
from serving.storage.files import StoredFile

router = APIRouter(prefix="/v1/files", tags=["files"])

Purpose = Literal["user_data", "assistants", "batch"]
PURPOSES = ("user_data", "assistants", "batch")
DEFAULT_PURPOSE = "user_data"
EXPIRES_AFTER_S = (3600, 2_592_000)
"""OpenAI's limits: an hour to 30 days."""
_EXPIRES = "expires_after[seconds]"
_ANCHOR = "expires_after[anchor]"
_DRAINED_S = 10.0
_DRAINED_BYTES = 512 * 2**20

FileUser = Annotated[Principal, Depends(require("files"))]


class DocumentFacts(BaseModel):
    """What was read from an upload. Offsets everywhere count `characters`, which are Unicode code points."""

    sha256: str
    characters: int
    tokens: int
    sources: int
    """Parts that a place in it is told by: the pages of a PDF, the sheets of a workbook; 1 for plain text."""


class FileObject(BaseModel):
    """OpenAI's file object; `longfold` is ours."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "file-01K9ZJ3W5T8Q4V6X2B7N9M1C0D",
                "object": "file",
                "bytes": 4831,
                "created_at": 1795305600,
                "filename": "contract.pdf",
                "purpose": "user_data",
                "status": "processed",
                "longfold": {"sha256": "9f…", "characters": 4102, "tokens": 977, "sources": 2},
            }
        }
    )
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["processed", "error"] = "processed"
    status_details: str | None = None
    longfold: DocumentFacts | None = None


class FileList(BaseModel):
    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(BaseModel):
    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


_FORM: Mapping[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "additionalProperties": False,
                    "properties": {
                        "purpose": {"type": "string", "enum": list(PURPOSES), "default": DEFAULT_PURPOSE},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {
                            "type": "integer",
                            "minimum": EXPIRES_AFTER_S[0],
                            "maximum": EXPIRES_AFTER_S[1],
                        },
                        "file": {"type": "string", "format": "binary"},
                    },
                }
            }
        },
    }
}


@router.post("", openapi_extra=dict(_FORM))
async def upload_file(request: Request, gateway: CurrentGateway, principal: FileUser) -> FileObject:
    """Store a document. It is read at once, so a file that cannot be read is refused here."""
    gateway.check_running()
    try:
        upload = await read_upload(request)
        purpose, expires_after_s = _read_fields(upload.fields)
        stored = await gateway.files.add(
            principal.owner,
            upload.name,
            purpose,
            upload.media_type,
            _checked(upload, purpose, expires_after_s),
            key_id=principal.key_id,
            expires_after_s=expires_after_s,
        )
    except ClientDisconnect:
        raise
    except Exception:
        await _drain(request)
        raise
    return file_object(stored)


@router.get("")
async def list_files(
    gateway: CurrentGateway,
    principal: FileUser,
    purpose: str = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str, Query(max_length=64)] = "",
    order: Literal["asc", "desc"] = "desc",
) -> FileList:
    """By time; `after` is the last id of the page before."""
    found = await gateway.files.list_files(
        principal.owner, purpose=purpose, limit=limit + 1, after=after, newest_first=order == "desc"
    )
    shown = [file_object(stored) for stored in found[:limit]]
    first, last = (shown[0].id, shown[-1].id) if shown else (None, None)
    return FileList(data=shown, first_id=first, last_id=last, has_more=len(found) > limit)


@router.get("/{file_id}")
async def get_file(file_id: str, gateway: CurrentGateway, principal: FileUser) -> FileObject:
    """One file's facts."""
    return file_object(await find_file(gateway, principal, file_id))


@router.delete("/{file_id}")
async def delete_file(file_id: str, gateway: CurrentGateway, principal: FileUser) -> FileDeleted:
    """Forget a file. Jobs that have its text keep it until they are deleted."""
    await find_file(gateway, principal, file_id)
    await gateway.files.delete(file_id, principal.owner)
    return FileDeleted(id=file_id)


@router.get("/{file_id}/content", response_class=FileResponse)
async def get_content(file_id: str, gateway: CurrentGateway, principal: FileUser) -> FileResponse:
    """The bytes as they were uploaded."""
    stored = await find_file(gateway, principal, file_id)
    path = gateway.files.open_bytes(stored)
    return FileResponse(path, media_type="application/octet-stream", filename=stored.name)


def file_object(stored: StoredFile) -> FileObject:
    document = stored.document
    facts = None
    if document is not None:
        facts = DocumentFacts(
            sha256=document.text_sha256,
            characters=document.characters,
            tokens=document.tokens,
            sources=len(document.sources),
        )
    return FileObject(
        id=stored.id,
        bytes=stored.size_bytes,
        created_at=int(stored.created_unix_s),
        expires_at=int(stored.expires_unix_s) if stored.expires_unix_s is not None else None,
        filename=stored.name,
        purpose=stored.purpose,
        status="error" if stored.error else "processed",
        status_details=stored.error or None,
        longfold=facts,
    )


def _read_fields(fields: Mapping[str, str]) -> tuple[str, int | None]:
    """The purpose, and after how many seconds the file expires."""
    if unknown := set(fields) - {"purpose", _ANCHOR, _EXPIRES}:
        name = min(unknown)
        raise ApiError(400, f"The field {name[:64]!r} is not supported.", "unknown_parameter", name[:64])
    purpose = fields.get("purpose", DEFAULT_PURPOSE)
    if purpose not in PURPOSES:
        raise ApiError(400, f"The purposes are {', '.join(PURPOSES)}.", "invalid_purpose", "purpose")
    if fields.get(_ANCHOR, "created_at") != "created_at":
        raise ApiError(400, "A file expires after its created_at, no other anchor.", "invalid_value", _ANCHOR)
    if (seconds := fields.get(_EXPIRES)) is None:
        return purpose, None
    min_s, max_s = EXPIRES_AFTER_S
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) < 10 and min_s <= int(seconds) <= max_s):
        raise ApiError(400, f"A file expires after {min_s} to {max_s} seconds.", "invalid_value", _EXPIRES)
    return purpose, int(seconds)


async def _checked(upload: Upload, *read: str | int | None) -> AsyncIterator[bytes]:
    """The file's bytes; then a look at fields that came behind it, while the upload can still be refused."""
    async for chunk in upload.chunks:
        yield chunk
    if _read_fields(upload.fields) != read:
        raise ApiError(400, "Send `purpose` and `expires_after` before `file`.", "field_after_file", "purpose")


async def _drain(request: Request) -> None:
    """Read on for a while: a connection closed on a client that still sends loses the answer on its way."""
    drained = 0
    with suppress(ClientDisconnect, TimeoutError, RuntimeError):
        async with asyncio.timeout(_DRAINED_S):
            async for data in request.stream():
                drained += len(data)
                if drained > _DRAINED_BYTES:
                    return
