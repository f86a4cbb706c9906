"""Uploads and texts: bytes in files named by their SHA-256, what is known of them in the database.

A client's file name never becomes a path. Equal content is stored once; a file goes when the last row naming it goes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection
from ulid import ULID

from pipeline.documents.document import Document
from pipeline.errors import DocumentUnreadable, EmptyDocument
from serving.storage.blobs import BlobFolder, remove_all
from serving.storage.database import Database
from serving.storage.document_ref import DocumentRef, document_from
from serving.storage.json_columns import to_json
from serving.storage.parse_file import ParseLimits, parse_file
from serving.storage.presence import Presence
from serving.storage.schema import files, job_documents
from serving.storage.stored_text import (
    TextFacts,
    estimate_tokens,
    read_document,
    read_span,
    write_text,
)
from serving.storage.uploads import Received, receive_upload

_UNREAD_PURPOSES = frozenset({"batch"})
_PARSED_AT_ONCE = 2
"""Each may take up to `ParseLimits.memory_bytes`."""
_KEPT_UNNAMED_S = 86_400.0
"""A text without a row waits so long for the job that it was stored for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An upload."""

    id: str
    owner: str
    name: str
    """As the client called it: any characters, never a path. Make it safe before it goes into a header."""
    purpose: str
    media_type: str
    size_bytes: int
    sha256: str
    created_unix_s: float
    expires_unix_s: float | None = None
    """From then on it is treated as deleted."""
    document: DocumentRef | None
    """What can be asked about; None for purposes that are not read."""
    error: str


class FileStore:
    """The files of one installation, scoped by owner."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        *,
        max_bytes: int,
        parse_limits: ParseLimits | None = None,
        count_tokens: Callable[[str], int] = lambda _: 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`count_tokens` is the served model's; without it `DocumentRef.tokens` stays 0."""
        self._database = database
        self._blobs = BlobFolder(folder)
        self._max_bytes = max_bytes
        self._parse_limits = parse_limits or ParseLimits()
        self._count_tokens = count_tokens
        self._now = now
        self._parsing = asyncio.Semaphore(_PARSED_AT_ONCE)

    @property
    def presence(self) -> Presence:
        """This process among those that share the folder."""
        return self._blobs.presence

    async def add(
        self,
        owner: str,
        name: str,
        purpose: str,
        media_type: str,
        chunks: AsyncIterator[bytes],
        *,
        key_id: str = "",
        expires_after_s: int | None = None,
    ) -> StoredFile:
        """Receive an upload piece by piece, read it, store both.

        Raises UploadTooLarge as soon as the limit is passed, DocumentUnreadable, EmptyDocument, OutOfDisk. Nothing is
        left behind then, nor when the client goes away.
        """
        incoming = self._blobs.incoming()
        try:
            received = await receive_upload(chunks, incoming, max_bytes=self._max_bytes)
            read = None if purpose in _UNREAD_PURPOSES else await self._read(incoming, name)
            now = self._now()
            names = (name, media_type, *([now + expires_after_s] if expires_after_s is not None else []))
            columns = {"owner": owner, "key_id": key_id, "purpose": purpose, "names": to_json(names)}
            return await self._keep(incoming, read, received, columns | {"created_unix_s": now})
        finally:
            await asyncio.to_thread(remove_all, incoming)

    async def add_enclosed(self, name: str, chunks: AsyncIterator[bytes]) -> DocumentRef:
        """Read a file that came in a request and store its text as `add_text` does: no upload is made of it.

        Raises as `add` does.
        """
        incoming = self._blobs.incoming()
        try:
            await receive_upload(chunks, incoming, max_bytes=self._max_bytes)
            read = await self._read(incoming, name)
            await asyncio.to_thread(self._blobs.keep_text, incoming.with_suffix(".txt"), read.text_sha256)
        finally:
            await asyncio.to_thread(remove_all, incoming)
        return read

    async def add_text(self, owner: str, text: str, name: str) -> DocumentRef:
        """Store text that came in a request. It is kept while a job refers to it, and a day without one."""
        del owner  # the text is found only through the job that names it, and jobs are scoped
        return await self.add_document(Document.from_text(text, name), name)

    async def add_document(self, document: Document, name: str) -> DocumentRef:
        """The same for what was read elsewhere."""
        if not document.text.strip():
            raise EmptyDocument
        incoming = self._blobs.incoming().with_suffix(".txt")
        try:
            facts = await asyncio.to_thread(write_text, document, incoming)
            await asyncio.to_thread(self._blobs.keep_text, incoming, facts.sha256)
        finally:
            await asyncio.to_thread(remove_all, incoming)
        return _reference(facts, name)

    async def find(self, file_id: str, owner: str) -> StoredFile | None:
        """None also for a file of someone else, and for one that has expired."""
        async with self._database.read() as connection:
            found = await connection.execute(select(*files.c).where(files.c.id == file_id, files.c.owner == owner))
            row = found.one_or_none()
        stored = _file_from(row) if row is not None else None
        return stored if stored is not None and not self._is_expired(stored) else None

    async def list_files(
        self, owner: str, *, purpose: str = "", limit: int = 100, after: str = "", newest_first: bool = True
    ) -> list[StoredFile]:
        """`after` is the last id of the page before."""
        order = files.c.id.desc() if newest_first else files.c.id
        wanted = select(*files.c).where(files.c.owner == owner).order_by(order).limit(limit)
        if purpose:
            wanted = wanted.where(files.c.purpose == purpose)
        if after:
            wanted = wanted.where(files.c.id < after if newest_first else files.c.id > after)
        async with self._database.read() as connection:
            found = [_file_from(row) for row in await connection.execute(wanted)]
        return [stored for stored in found if not self._is_expired(stored)]

    async def delete(self, file_id: str, owner: str) -> bool:
        """False if there is no such file. The text of a document stays while a job refers to it."""
        mine = (files.c.id == file_id, files.c.owner == owner)
        async with self._database.write() as connection:
            row = (await connection.execute(select(*files.c).where(*mine).with_for_update())).one_or_none()
            if row is None:
                return False
            await connection.execute(delete(files).where(*mine))
        # In a second transaction: a crash between the two leaves bytes without a row, never a row without bytes.
        async with self._database.write() as connection:
            await _one_at_a_time(connection)
            if not await _count(connection, files.c.sha256 == row.sha256):
                self._blobs.bytes_path(row.sha256).unlink(missing_ok=True)
            if row.text_sha256 and not await self._is_named(connection, row.text_sha256):
                remove_all(self._blobs.text_path(row.text_sha256))
        return True

    async def prune(self, *, before_unix_s: float, max_bytes: int) -> int:
        """Delete files from before a moment, then the oldest until the others fit into `max_bytes`; return how many."""
        removed = 0
        async with self._database.read() as connection:
            stored = select(files.c.id, files.c.owner, files.c.size_bytes, files.c.created_unix_s)
            rows = (await connection.execute(stored.order_by(files.c.created_unix_s))).all()
        total_bytes = sum(row.size_bytes for row in rows)
        for row in rows:
            if row.created_unix_s >= before_unix_s and total_bytes <= max_bytes:
                break
            removed += await self.delete(row.id, row.owner)
            total_bytes -= row.size_bytes
        return removed

    async def sweep(self) -> int:
        """Remove what has expired, and what crashes and deleted jobs left behind; return how many files. Call it
        at the start, and often."""
        async with self._database.read() as connection:
            every = [_file_from(row) for row in await connection.execute(select(*files.c))]
        for stored in filter(self._is_expired, every):
            await self.delete(stored.id, stored.owner)
        before_unix_s = self._now() - _KEPT_UNNAMED_S
        old = await asyncio.to_thread(self._blobs.older_than, before_unix_s)
        removed = await asyncio.to_thread(self._blobs.remove_orphans)
        for path in old:
            async with self._database.write() as connection:
                await _one_at_a_time(connection)
                if path.suffix == ".txt" and await self._is_named(connection, path.stem):
                    continue
                if path.parent.parent.name == "bytes" and await _count(connection, files.c.sha256 == path.name):
                    continue
                remove_all(path)
                removed += 1
        return removed

    def open_bytes(self, file: StoredFile) -> Path:
        """The upload as it came."""
        return self._blobs.bytes_path(file.sha256)

    def text_path(self, document: DocumentRef) -> Path:
        """A UTF-8 file; offsets of spans are code points in it."""
        return self._blobs.text_path(document.text_sha256)

    async def load_document(self, refs: Sequence[DocumentRef]) -> Document:
        """One document of all `refs`, in their order. DocumentUnreadable if one was deleted."""
        documents = [await asyncio.to_thread(self._load, ref) for ref in refs]
        return documents[0] if len(documents) == 1 else Document.join(documents)

    async def read_text(self, ref: DocumentRef, start: int, end: int) -> str:
        """Code points [start, end) of one document, as far as there are so many."""
        try:
            return await asyncio.to_thread(read_span, self.text_path(ref), start, end)
        except FileNotFoundError:
            raise DocumentUnreadable(_deleted(ref)) from None

    def _load(self, ref: DocumentRef) -> Document:
        facts = TextFacts(sha256=ref.text_sha256, characters=ref.characters, sources=ref.sources)
        try:
            return read_document(self.text_path(ref), facts, ref.name)
        except FileNotFoundError:
            raise DocumentUnreadable(_deleted(ref)) from None

    def _is_expired(self, stored: StoredFile) -> bool:
        return stored.expires_unix_s is not None and stored.expires_unix_s <= self._now()

    async def _read(self, incoming: Path, name: str) -> DocumentRef:
        """The text of the file `incoming`, which is then beside it; its owner calls it `name`."""
        text_path = incoming.with_suffix(".txt")
        async with self._parsing:
            facts = await parse_file(incoming, name, text_path, self._parse_limits)
            tokens = await asyncio.to_thread(estimate_tokens, text_path, facts.characters, self._count_tokens)
        return replace(_reference(facts, name), tokens=tokens)

    async def _keep(
        self, incoming: Path, read: DocumentRef | None, received: Received, columns: dict[str, Any]
    ) -> StoredFile:
        """Give bytes and text their final names and the file its row, in one transaction."""
        file_id = f"file-{ULID.from_timestamp(columns['created_unix_s'])}"
        if read is not None:
            document = replace(read, file_id=file_id)
            columns = columns | {"text_sha256": read.text_sha256, "document": to_json(document)}
        async with self._database.write() as connection:
            await _one_at_a_time(connection)
            self._blobs.keep_bytes(incoming, received.sha256)
            if read is not None:
                self._blobs.keep_text(incoming.with_suffix(".txt"), read.text_sha256)
            stored = await connection.execute(
                insert(files)
                .values(
                    **columns,
                    id=file_id,
                    size_bytes=received.size_bytes,
                    sha256=received.sha256,
                )
                .returning(*files.c)
            )
            return _file_from(stored.one())

    async def _is_named(self, connection: AsyncConnection, text_sha256: str) -> bool:
        if await _count(connection, files.c.text_sha256 == text_sha256):
            return True
        jobs_with_it = select(func.count()).where(job_documents.c.text_sha256 == text_sha256)
        return bool(await connection.scalar(jobs_with_it))


def _reference(facts: TextFacts, name: str) -> DocumentRef:
    return DocumentRef(text_sha256=facts.sha256, name=name, characters=facts.characters, sources=facts.sources)


def _deleted(ref: DocumentRef) -> str:
    return f"The document {ref.name!r} was deleted; upload it again."


async def _one_at_a_time(connection: AsyncConnection) -> None:
    """Postgres: files get and lose their names one after the other, as all writes do on SQLite."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_advisory_xact_lock(5264018811902735)"))


async def _count(connection: AsyncConnection, condition: Any) -> int:
    return int(await connection.scalar(select(func.count()).select_from(files).where(condition)) or 0)


def _file_from(row: Row[Any]) -> StoredFile:
    name, media_type, *expires = json.loads(row.names)
    return StoredFile(
        id=row.id,
        owner=row.owner,
        name=name,
        purpose=row.purpose,
        media_type=media_type,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        created_unix_s=row.created_unix_s,
        expires_unix_s=expires[0] if expires else None,
        document=document_from(json.loads(row.document)) if row.document else None,
        error=row.error,
    )
