"""The database under stress: locked, full, damaged, of another version. Nothing is lost in silence."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline.errors import DatabaseBusy, DatabaseUnusable, OutOfDisk, SettingInvalid
from serving.jobs.job import JobRequest, JobState, NewEvent
from serving.jobs.store import JobStore
from serving.storage.database import Database
from serving.storage.migrate import (
    SchemaState,
    check_schema,
    newest_revision,
    prepare_database,
    schema_state,
    upgrade_database,
)
from tests.integration.storage.factories import OWNER, claim, new_job, submit


@pytest.fixture
async def hasty(tmp_path: Path):
    """SQLite with little patience."""
    opened = Database.open(f"sqlite:///{tmp_path / 'jobs.db'}", lock_s=0.2, turn_s=1.0)
    await prepare_database(opened)
    yield opened
    await opened.close()


def lock(database: Database) -> sqlite3.Connection:
    """As another process that writes and does not end."""
    assert database.path is not None
    connection = sqlite3.connect(database.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_a_locked_database_is_busy_after_a_while_and_loses_no_event(hasty: Database) -> None:
    store = JobStore(hasty)
    job = await submit(store)
    held = await claim(store)
    told = [NewEvent(kind="plan", data={}), NewEvent(kind="split", data={})]
    with closing(lock(hasty)) as other:
        for write in (store.append(held, told), store.submit(new_job()), store.request_cancel(job.id, OWNER)):
            with pytest.raises(DatabaseBusy):
                await write
        assert await store.find(job.id, OWNER) is not None, "reading goes on"
        other.execute("ROLLBACK")
    await store.append(held, told)
    assert [event.kind for event in await store.events(job.id)][2:] == ["plan", "split"]
    assert len(await store.list_jobs(OWNER)) == 1


async def test_a_lock_that_is_given_up_in_time_is_waited_for(hasty: Database) -> None:
    other = lock(hasty)
    waiting = asyncio.create_task(submit(JobStore(hasty)))
    await asyncio.sleep(0.05)
    other.execute("ROLLBACK")
    other.close()
    assert (await waiting).state is JobState.QUEUED


async def test_a_reader_that_does_not_end_makes_the_commit_fail_and_undone(hasty: Database) -> None:
    store = JobStore(hasty)
    await submit(store)
    assert hasty.path is not None
    with closing(sqlite3.connect(hasty.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM jobs").fetchone()
        with pytest.raises(DatabaseBusy):
            await submit(store)
    assert len(await store.list_jobs(OWNER)) == 1


async def test_a_transaction_that_is_cancelled_leaves_nothing_and_no_lock(hasty: Database) -> None:
    store = JobStore(hasty)

    async def write_slowly() -> None:
        async with hasty.write() as connection:
            await connection.execute(text("DELETE FROM jobs"))
            await asyncio.sleep(60)

    await submit(store)
    slow = asyncio.create_task(write_slowly())
    await asyncio.sleep(0.1)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert len(await store.list_jobs(OWNER)) == 1
    await submit(store)


async def test_many_cancelled_in_the_middle_of_anything_leave_a_sound_database(hasty: Database) -> None:
    store = JobStore(hasty)
    for step in range(25):
        task = asyncio.create_task(submit(store))
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    job = await submit(store)
    for stored in await store.list_jobs(OWNER, limit=100):
        assert [event.kind for event in await store.events(stored.id)] == ["job.queued"], "all or nothing"
    assert await store.find(job.id, OWNER)
    await hasty.check_integrity()


async def test_a_full_disk_is_told_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    database = Database.open(f"sqlite:///{path}")
    await prepare_database(database)
    store = JobStore(database)
    job = await submit(store)
    held = await claim(store)
    async with database.write() as connection:
        pages = await connection.scalar(text("PRAGMA page_count"))
        await connection.execute(text(f"PRAGMA max_page_count = {pages + 2}"))
    before = await store.events(job.id)
    with pytest.raises(OutOfDisk):
        await store.append(held, [NewEvent(kind="plan", data={"x": "y" * 50_000})])
    assert await store.events(job.id) == before
    with pytest.raises(OutOfDisk):
        await store.submit(new_job(request=JobRequest(question="y" * 50_000)))
    assert len(await store.list_jobs(OWNER)) == 1
    await database.check_integrity()
    await database.close()

    roomy = Database.open(f"sqlite:///{path}")
    await JobStore(roomy).append(held, [NewEvent(kind="plan", data={"x": "y" * 5000})])
    await roomy.close()


@pytest.mark.parametrize("damage", ["header", "middle"])
async def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "jobs.db"
    database = Database.open(f"sqlite:///{path}")
    await prepare_database(database)
    await submit(JobStore(database))
    await database.close()
    content = bytearray(path.read_bytes())
    start = 0 if damage == "header" else 4096
    content[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    database = Database.open(f"sqlite:///{path}")

    async def check() -> None:
        await check_schema(database)
        await database.check_integrity()

    with pytest.raises(DatabaseUnusable, match=r"jobs\.db"):
        await check()
    await database.close()


@pytest.mark.parametrize(
    "url", ["", "mysql://a:secret@b/c", "sqlite://", "sqlite:///relative.db", "sqlite:///:memory:", "nonsense"]
)
def test_an_url_that_cannot_be_used_says_what_is_expected_and_no_secret(url: str) -> None:
    with pytest.raises(SettingInvalid, match=r"sqlite:////absolute/path") as refused:
        Database.open(url)
    assert "secret" not in str(refused.value)


async def test_a_server_that_is_away_is_busy_and_its_password_is_not_told() -> None:
    database = Database.open("postgresql://me:secret@127.0.0.1:9/x")
    with pytest.raises(DatabaseBusy) as refused:
        async with database.read():
            pass
    assert "secret" not in str(refused.value)
    assert "secret" not in database.shown_url
    await database.close()


async def test_a_file_in_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnusable, match="file/x"):
        Database.open(f"sqlite:///{tmp_path}/file/x/jobs.db")


# --- schema ----------------------------------------------------------------------------------------------------------


async def test_an_empty_database_gets_its_tables_once(empty_url: str) -> None:
    databases = [Database.open(empty_url) for _ in range(3)]
    assert await schema_state(databases[0]) is SchemaState.EMPTY
    await asyncio.gather(*(prepare_database(database) for database in databases))
    assert await schema_state(databases[0]) is SchemaState.CURRENT
    done = await upgrade_database(databases[0])
    assert (done.before, done.after, done.backup) == (newest_revision(), newest_revision(), None)
    for database in databases:
        await database.close()


async def test_the_revisions_make_the_tables_that_the_code_reads(database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from serving.storage.schema import metadata

    async with database.read() as connection:
        found = await connection.run_sync(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    assert found == []


async def set_revision(database: Database, revision: str) -> None:
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


async def test_a_database_of_a_newer_version_is_refused(database: Database) -> None:
    await set_revision(database, "9999")
    for work in (check_schema, prepare_database, upgrade_database):
        with pytest.raises(DatabaseUnusable, match="newer version of Longfold; install that version"):
            await work(database)
    await set_revision(database, newest_revision())


async def test_a_database_of_others_is_refused(empty_url: str) -> None:
    database = Database.open(empty_url)
    async with database.write() as connection:
        await connection.execute(text("CREATE TABLE theirs (a INTEGER)"))
    for work in (check_schema, prepare_database, upgrade_database):
        with pytest.raises(DatabaseUnusable, match="a database of its own"):
            await work(database)
    await database.close()


async def test_an_empty_database_is_not_used_before_its_tables_are_made(empty_url: str) -> None:
    database = Database.open(empty_url)
    with pytest.raises(DatabaseUnusable, match="longfold db upgrade"):
        await check_schema(database)
    await database.close()


async def test_an_upgrade_makes_a_backup_that_holds_everything(
    hasty: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = await submit(JobStore(hasty))
    _pretend_older(monkeypatch)
    with pytest.raises(DatabaseUnusable, match="older version of Longfold; stop it everywhere"):
        await prepare_database(hasty)
    done = await upgrade_database(hasty)
    assert done.backup is not None
    assert done.backup.parent == tmp_path
    with closing(sqlite3.connect(done.backup)) as copy:
        assert copy.execute("SELECT id FROM jobs").fetchall() == [(job.id,)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (done.before,)


async def test_no_upgrade_without_room_for_a_backup(
    hasty: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import resource

    _pretend_older(monkeypatch)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises((OutOfDisk, DatabaseUnusable), match="backup"):
            await upgrade_database(hasty)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.glob("*.backup")) == []


def _pretend_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a revision had been added since; running it does nothing."""
    from serving.storage import migrate

    async def run_nothing(database: Database) -> None:
        return None

    monkeypatch.setattr(migrate, "newest_revision", lambda: "0002")
    monkeypatch.setattr(migrate, "_run_revisions", run_nothing)
