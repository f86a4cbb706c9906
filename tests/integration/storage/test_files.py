"""Uploads and texts: received under a limit, read in a process of its own, found by their owner only."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.documents.document import Document
from pipeline.errors import DocumentUnreadable, EmptyDocument, InternalError, OutOfDisk, UploadTooLarge
from serving.jobs.store import JobStore
from serving.storage import uploads
from serving.storage.database import Database
from serving.storage.document_ref import DocumentRef
from serving.storage.files import FileStore, StoredFile
from serving.storage.parse_file import ParseLimits
from serving.storage.stored_text import COUNTED_CHARS, INDEX_STEP_CHARS, estimate_tokens, read_span, write_text
from tests.integration.storage.conftest import url_of
from tests.integration.storage.factories import OWNER, Clock, submit
from tests.unit.documents.office_files import paragraph, word_file

DAY_S = 86_400


BOTH = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, except where the database has a part in what is tested."""
    return url_of(getattr(request, "param", "sqlite"), request, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def store_of_files(database: Database, folder: Path) -> FileStore:
    return FileStore(database, folder, max_bytes=1 << 20)


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def add(
    files: FileStore, data: bytes, name: str = "a.txt", owner: str = OWNER, purpose: str = "user_data"
) -> StoredFile:
    return await files.add(owner, name, purpose, "text/plain", stream(data), key_id="k")


def left_behind(folder: Path) -> list[str]:
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not path.startswith("processes/")]


@BOTH
async def test_an_upload_is_kept_as_it_came_and_read(store_of_files: FileStore) -> None:
    files = store_of_files
    data = "\ufeffLine one\r\n世界 \U0001f600".encode()
    file = await files.add(OWNER, "a.txt", "user_data", "text/plain", stream(data[:5], b"", data[5:]), key_id="k")
    assert files.open_bytes(file).read_bytes() == data
    assert file.document is not None
    assert file.document.file_id == file.id
    document = await files.load_document([file.document])
    assert document.text == files.text_path(file.document).read_bytes().decode()
    assert file.document.characters == len(document.text)
    assert await files.find(file.id, OWNER) == file


async def test_an_office_file_comes_with_its_text(store_of_files: FileStore) -> None:
    file = await add(store_of_files, word_file(paragraph("Harbour dues")), "a.docx")
    assert file.document is not None
    assert await store_of_files.read_text(file.document, 0, 7) == "Harbour"


@BOTH
async def test_a_stranger_finds_nothing(store_of_files: FileStore) -> None:
    file = await add(store_of_files, b"x")
    assert await store_of_files.find(file.id, "stranger") is None
    assert await store_of_files.list_files("stranger") == []
    assert not await store_of_files.delete(file.id, "stranger")
    assert await store_of_files.find(file.id, OWNER)


@BOTH
async def test_lists_have_an_order_a_purpose_and_pages(store_of_files: FileStore, clock: Clock) -> None:
    files = store_of_files
    files._now = clock.unix_s
    made = []
    for purpose in ("user_data", "batch", "user_data"):
        made.append((await add(files, b'{"a": 1}', purpose=purpose)).id)
        clock.pass_s(1)
    assert [file.id for file in await files.list_files(OWNER)] == made[::-1]
    assert [file.id for file in await files.list_files(OWNER, purpose="batch")] == [made[1]]
    assert [file.id for file in await files.list_files(OWNER, limit=1, after=made[2])] == [made[1]]
    assert [file.id for file in await files.list_files(OWNER, newest_first=False, after=made[0])] == made[1:]


async def test_a_batch_is_not_read(store_of_files: FileStore) -> None:
    file = await add(store_of_files, b"\x00\xff not text", purpose="batch")
    assert file.document is None


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "a\0b", "a\r\nSet-Cookie: x", "%2e%2e/x", "", "x" * 5000, "\ud800", "."]
)
@BOTH
async def test_a_name_is_only_a_name(store_of_files: FileStore, folder: Path, name: str) -> None:
    file = await add(store_of_files, b"text", name)
    assert (await store_of_files.find(file.id, OWNER)) == file
    assert file.name == name
    stored = left_behind(folder)
    assert len(stored) == 3
    assert all(path.split("/")[0] in ("bytes", "text") for path in stored)
    assert sorted(entry.name for entry in folder.parent.iterdir() if entry.is_dir()) == ["files"]


# --- refused ---------------------------------------------------------------------------------------------------------


async def test_the_limit_is_on_what_comes_and_stops_it_there(store_of_files: FileStore, folder: Path) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 65536

    with pytest.raises(UploadTooLarge, match="1 MiB"):
        await store_of_files.add(OWNER, "a.txt", "user_data", "", endless())
    assert sent == 17
    assert left_behind(folder) == []


async def test_exactly_the_limit_is_accepted(database: Database, folder: Path) -> None:
    files = FileStore(database, folder, max_bytes=10)
    assert (await add(files, b"0123456789")).size_bytes == 10
    with pytest.raises(UploadTooLarge):
        await add(files, b"0123456789a")


@pytest.mark.parametrize(
    ("data", "name", "error"),
    [
        (b"%PDF-1.7 nothing", "a.pdf", DocumentUnreadable),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "a.txt", DocumentUnreadable),
        (b"", "a.txt", EmptyDocument),
        (b" \n ", "a.txt", EmptyDocument),
    ],
)
async def test_what_cannot_be_read_leaves_nothing(
    store_of_files: FileStore, folder: Path, data: bytes, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name.replace(".", r"\.")):
        await add(store_of_files, data, name)
    assert left_behind(folder) == []
    assert await store_of_files.list_files(OWNER) == []


async def test_a_client_that_goes_away_leaves_nothing(store_of_files: FileStore, folder: Path) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield b"x" * (2 << 19)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await store_of_files.add(OWNER, "a.txt", "user_data", "", breaks())

    async def stalls() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(60)

    stalled = asyncio.create_task(store_of_files.add(OWNER, "a.txt", "user_data", "", stalls()))
    await asyncio.sleep(0.1)
    stalled.cancel()
    await asyncio.wait([stalled])
    assert left_behind(folder) == []


async def test_a_client_that_goes_away_while_its_file_is_read_ends_the_reading(
    store_of_files: FileStore, folder: Path
) -> None:
    adding = asyncio.create_task(add(store_of_files, b"text " * 1000))
    for _ in range(200):
        await asyncio.sleep(0.01)
        if children := _children():
            break
    adding.cancel()
    await asyncio.wait([adding])
    assert children
    assert _children() == set()
    assert left_behind(folder) == []


def _children() -> set[int]:
    """Processes that read a file for this one."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == os.getpid() and b"serving.storage.parse_file" in line:
                found.add(int(entry.name))
    return found


@pytest.mark.parametrize("max_bytes", [100_000, 300_000])
async def test_a_full_disk_is_told_and_leaves_nothing(store_of_files: FileStore, folder: Path, max_bytes: int) -> None:
    data = "世界 ".encode() * 25_000  # 175 KB, as text as well
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = store_of_files
    if max_bytes > len(data):
        data = b"\xff\xfe" + ("世 " * 70_000).encode("utf-16-le")  # 280 KB, and as UTF-8 beyond the limit of the child
        max_bytes = len(data) - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        with pytest.raises(OutOfDisk):
            await add(files, data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_behind(folder) == []


async def test_memory_stays_flat_while_much_comes_in(database: Database, folder: Path) -> None:
    files = FileStore(database, folder, max_bytes=1 << 30)

    async def much() -> AsyncIterator[bytes]:
        for _ in range(64 * 16):
            yield bytes(65536)

    tracemalloc.start()
    try:
        file = await files.add(OWNER, "a.bin", "batch", "", much())
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert file.size_bytes == 64 << 20
    assert peak_bytes < 8 * uploads._PIECE_BYTES


# --- reading in a process of its own ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [ParseLimits(memory_bytes=100 << 20), ParseLimits(cpu_s=1), ParseLimits(deadline_s=0.05)],
    ids=["memory", "processor", "deadline"],
)
async def test_reading_ends_at_its_limits(database: Database, folder: Path, limits: ParseLimits) -> None:
    files = FileStore(database, folder, max_bytes=64 << 20, parse_limits=limits)
    data = b'{"a": [' + b"[1, 2]," * 2_000_000 + b"3]}"
    with pytest.raises(DocumentUnreadable, match=r"needs more than|was not read after"):
        await add(files, data, "a.json")
    assert left_behind(folder) == []


async def test_the_reader_gets_no_secrets_from_the_environment(
    store_of_files: FileStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    spy = tmp_path / "python"
    import sys

    spy.write_text(f'#!/bin/sh\nenv > {seen}\nexec {sys.executable} "$@"\n')
    spy.chmod(0o700)
    monkeypatch.setenv("LONGFOLD_DATABASE_URL", "postgresql://me:canary-secret@host/x")
    monkeypatch.setattr(sys, "executable", str(spy))
    await add(store_of_files, b"text")
    assert "PYTHONPATH" in seen.read_text()
    assert "canary-secret" not in seen.read_text()


# --- texts -----------------------------------------------------------------------------------------------------------


async def test_a_text_from_a_request_is_kept_by_content(store_of_files: FileStore, folder: Path) -> None:
    one = await store_of_files.add_text("a", "same \ud800 text", "one")
    two = await store_of_files.add_text("b", "same \ufffd text", "two")
    assert one.text_sha256 == two.text_sha256
    assert len(left_behind(folder)) == 2
    assert (await store_of_files.load_document([one])).text == "same \ufffd text"
    with pytest.raises(EmptyDocument):
        await store_of_files.add_text("a", " ", "empty")


async def test_several_documents_are_joined_in_their_order(store_of_files: FileStore) -> None:
    refs = [await store_of_files.add_text(OWNER, text, name) for text, name in (("one", "a"), ("two", "b"))]
    joined = await store_of_files.load_document(refs[::-1])
    assert joined.text == "two\n\none"
    assert [source.name for source in joined.sources] == ["b", "a"]


async def test_a_text_that_was_changed_on_the_disk_is_not_asked_about(store_of_files: FileStore) -> None:
    ref = await store_of_files.add_text(OWNER, "text", "a")
    store_of_files.text_path(ref).write_text("tixt")
    with pytest.raises(InternalError, match="has changed"):
        await store_of_files.load_document([ref])


SAMPLE = ("aé世\U0001f600\n\r\n" * (INDEX_STEP_CHARS // 2))[: 3 * INDEX_STEP_CHARS + 17]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "a.txt"
    write_text(Document.from_text(SAMPLE), path)
    return path


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-5, len(SAMPLE) + INDEX_STEP_CHARS), st.integers(0, 2 * INDEX_STEP_CHARS))
def test_any_span_is_read_as_it_would_be_cut_from_the_text(sample: Path, start: int, length: int) -> None:
    assert read_span(sample, start, start + length) == (SAMPLE[start : start + length] if start >= 0 else "")


@pytest.mark.parametrize("start", [0, INDEX_STEP_CHARS - 1, INDEX_STEP_CHARS, 2 * INDEX_STEP_CHARS + 1])
@pytest.mark.parametrize("end", [INDEX_STEP_CHARS, INDEX_STEP_CHARS + 1, 3 * INDEX_STEP_CHARS, len(SAMPLE), 10**12])
def test_spans_at_the_edges_of_the_index(sample: Path, start: int, end: int) -> None:
    assert read_span(sample, start, end) == SAMPLE[start:end]


def test_a_short_span_of_a_long_text_is_read_without_the_rest(sample: Path) -> None:
    tracemalloc.start()
    try:
        read_span(sample, 3 * INDEX_STEP_CHARS, 3 * INDEX_STEP_CHARS + 5)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < INDEX_STEP_CHARS


# --- deleting --------------------------------------------------------------------------------------------------------


@BOTH
async def test_equal_uploads_are_stored_once_and_go_with_the_last(store_of_files: FileStore, folder: Path) -> None:
    one, two = await add(store_of_files, b"same"), await add(store_of_files, b"same", owner="other")
    assert one.id != two.id
    assert len(left_behind(folder)) == 3
    assert await store_of_files.delete(one.id, OWNER)
    assert two.document is not None
    assert await store_of_files.read_text(two.document, 0, 4) == "same"
    assert await store_of_files.delete(two.id, "other")
    assert left_behind(folder) == []
    with pytest.raises(DocumentUnreadable, match="was deleted"):
        await store_of_files.load_document([two.document])
    with pytest.raises(DocumentUnreadable, match="was deleted"):
        await store_of_files.read_text(two.document, 0, 4)


@BOTH
async def test_a_jobs_text_outlives_the_upload_and_goes_after_the_job(
    store_of_files: FileStore, store: JobStore, folder: Path, clock: Clock
) -> None:
    from serving.jobs.job import JobRequest

    files = store_of_files
    files._now = clock.unix_s
    file = await add(files, b"needed")
    assert file.document is not None
    job = await submit(store, request=JobRequest(documents=(file.document,)))
    await files.delete(file.id, OWNER)
    assert [path.split("/")[0] for path in left_behind(folder)] == ["text", "text"]
    assert (await files.load_document([file.document])).text == "needed"
    clock.wall_s = _written_unix_s(files, file.document) + 2 * DAY_S
    assert await files.sweep() == 0
    await store.request_cancel(job.id, OWNER)
    await store.delete(job.id, OWNER)
    assert await files.sweep() == 1
    assert left_behind(folder) == []


@BOTH
async def test_what_a_crash_left_is_swept_when_it_is_old(store_of_files: FileStore, folder: Path, clock: Clock) -> None:
    files = store_of_files
    kept = await add(files, b"kept")
    fresh = await files.add_text(OWNER, "fresh, without a job yet", "a")
    for name in ("incoming/01ABC", "incoming/01ABC.txt", "bytes/aa/aaaa", "text/bb/bbbb.txt", "text/bb/bbbb.index"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
        os.utime(folder / name, (0, 0))
    assert await files.sweep() == 4
    assert await files.load_document([fresh])
    assert files.open_bytes(kept).exists()
    assert len(left_behind(folder)) == 5


async def test_what_a_killed_process_was_receiving_is_swept_at_once_and_that_of_a_live_one_is_not(
    store_of_files: FileStore, folder: Path
) -> None:
    arriving = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"half"
        arriving.set()
        await asyncio.sleep(60)

    receiving = asyncio.create_task(store_of_files.add(OWNER, "a.txt", "user_data", "text/plain", slow()))
    await arriving.wait()
    dead = folder / "incoming" / "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    dead.mkdir()
    (dead / "01ARZ3NDEKTSV4RRFFQ69G5FAW").write_bytes(b"x" * 24)
    assert await store_of_files.sweep() == 1
    assert not dead.exists()
    assert len(left_behind(folder)) == 1, "that of this process"
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    assert left_behind(folder) == []


@BOTH
async def test_uploads_and_deletes_of_one_content_at_once_never_lose_it(store_of_files: FileStore) -> None:
    async def one(number: int) -> StoredFile | None:
        file = await add(store_of_files, b"same")
        if number % 2:
            await store_of_files.delete(file.id, OWNER)
            return None
        return file

    for file in await asyncio.gather(*(one(number) for number in range(6))):
        if file is not None:
            assert file.document is not None
            assert await store_of_files.read_text(file.document, 0, 4) == "same"
            assert store_of_files.open_bytes(file).read_bytes() == b"same"


def _written_unix_s(files: FileStore, document: DocumentRef) -> float:
    return files.text_path(document).stat().st_mtime


@BOTH
async def test_a_row_of_an_older_version_is_read(store_of_files: FileStore, database: Database) -> None:
    from sqlalchemy import text

    file = await add(store_of_files, b"text")
    old = json.dumps({"text_sha256": "x", "name": "n", "later": True})
    async with database.write() as connection:
        await connection.execute(text("UPDATE files SET document = :old"), {"old": old})
    found = await store_of_files.find(file.id, OWNER)
    assert found is not None
    assert found.document == DocumentRef(text_sha256="x", name="n")


def test_tokens_are_counted_and_those_of_a_long_text_estimated(tmp_path: Path) -> None:
    read: list[int] = []

    def count(piece: str) -> int:
        read.append(len(piece))
        return len(piece.split())

    text = "Ein Satz mit Umlauten: ÄÖÜ. " * 1_000
    for repeated, at_most_read in ((1, len(text)), (200, COUNTED_CHARS)):
        read.clear()
        document = Document.from_text(text * repeated, "a")
        path = tmp_path / f"{repeated}.txt"
        facts = write_text(document, path)
        tokens = estimate_tokens(path, facts.characters, count)
        assert tokens == pytest.approx(5_000 * repeated, rel=0.01)
        assert sum(read) <= at_most_read


async def test_a_file_of_a_request_leaves_its_text_for_the_job_and_no_upload(
    store_of_files: FileStore, folder: Path
) -> None:
    document = await store_of_files.add_enclosed("a.txt", stream(b"Ada ", b"signed."))
    assert (document.file_id, document.name) == ("", "a.txt")
    assert (await store_of_files.load_document([document])).text == "Ada signed."
    assert await store_of_files.list_files(OWNER) == []
    assert {Path(path).suffix for path in left_behind(folder)} == {".txt", ".index"}
    with pytest.raises(DocumentUnreadable):
        await store_of_files.add_enclosed("a.png", stream(b"\x89PNG\r\n\x1a\n" + bytes(range(256))))
    assert len(left_behind(folder)) == 2


async def test_a_file_that_expired_is_gone_and_then_swept(
    store_of_files: FileStore, folder: Path, clock: Clock
) -> None:
    store_of_files._now = clock.unix_s
    kept = await add(store_of_files, b"for good")
    brief = await store_of_files.add(
        OWNER, "b.txt", "user_data", "text/plain", stream(b"an hour"), expires_after_s=3600
    )
    assert brief.expires_unix_s == brief.created_unix_s + 3600
    assert {stored.id for stored in await store_of_files.list_files(OWNER)} == {kept.id, brief.id}
    clock.pass_s(3601)
    assert await store_of_files.find(brief.id, OWNER) is None
    assert [stored.id for stored in await store_of_files.list_files(OWNER)] == [kept.id]
    await store_of_files.sweep()
    assert len([path for path in (folder / "bytes").glob("**/*") if path.is_file()]) == 1
    assert await store_of_files.delete(brief.id, OWNER) is False
