"""The schema's state, and the one command that changes it: `longfold db upgrade`, which makes a backup first."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from pipeline.errors import DatabaseUnusable, OutOfDisk
from serving.storage.database import Database

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 5_264_018_811_902_734
"""Of Postgres' advisory locks, the one that upgrades take."""


class SchemaState(StrEnum):
    EMPTY = "empty"
    """No table of ours."""
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    """Its revision is not known here."""
    FOREIGN = "foreign"
    """Tables of ours without a revision, or only tables of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What an upgrade did."""

    before: str
    """The revision that was found; empty for a new database."""
    after: str
    backup: Path | None
    """None: there was nothing to save, or the database is Postgres."""


async def schema_state(database: Database) -> SchemaState:
    return _state_of(await _found_in(database))


async def check_schema(database: Database) -> None:
    """Raise DatabaseUnusable, saying what to do, unless the schema is the one this version works with."""
    state = await schema_state(database)
    if state is not SchemaState.CURRENT:
        raise DatabaseUnusable(f"The database {database.shown_url} {_ADVICE[state]}")


async def prepare_database(database: Database) -> None:
    """Make the tables in an empty database; check any other one."""
    if await schema_state(database) is SchemaState.EMPTY:
        await _run_revisions(database)
    await check_schema(database)


async def upgrade_database(database: Database) -> Upgrade:
    """Bring the schema to this version. On SQLite a copy is made beside the file first."""
    found = await _found_in(database)
    state = _state_of(found)
    if state in (SchemaState.NEWER, SchemaState.FOREIGN):
        raise DatabaseUnusable(f"The database {database.shown_url} {_ADVICE[state]}")
    backup = None
    if state is SchemaState.OLDER and database.path is not None:
        backup = await asyncio.to_thread(_back_up, database.path, found.revision)
    if state is not SchemaState.CURRENT:
        await _run_revisions(database)
    return Upgrade(before=found.revision, after=newest_revision(), backup=backup)


def newest_revision() -> str:
    return _scripts().get_current_head() or ""


_ADVICE = {
    SchemaState.EMPTY: "is empty; run `longfold db upgrade`.",
    SchemaState.OLDER: "was made by an older version of Longfold; stop it everywhere, then run `longfold db upgrade`.",
    SchemaState.NEWER: "was made by a newer version of Longfold; install that version, or restore a backup.",
    SchemaState.FOREIGN: "holds tables that Longfold did not make; give it a database of its own.",
}


@dataclass(frozen=True, slots=True)
class _Found:
    revision: str
    has_tables: bool


async def _found_in(database: Database) -> _Found:
    def look(connection: Connection) -> _Found:
        revision = MigrationContext.configure(connection).get_current_revision() or ""
        tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
        return _Found(revision, bool(tables))

    async with database.read() as connection:
        return await connection.run_sync(look)


def _state_of(found: _Found) -> SchemaState:
    if not found.revision:
        return SchemaState.FOREIGN if found.has_tables else SchemaState.EMPTY
    if found.revision == newest_revision():
        return SchemaState.CURRENT
    known = {script.revision for script in _scripts().walk_revisions()}
    return SchemaState.OLDER if found.revision in known else SchemaState.NEWER


async def _run_revisions(database: Database) -> None:
    """All in one transaction. Of several processes that start at once, one makes the tables and the rest find them."""

    def run(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async with database.write() as connection:
        await connection.run_sync(run)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _back_up(path: Path, revision: str) -> Path:
    """A consistent copy, even while others read and write."""
    made = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    backup = path.with_name(f"{path.name}.{revision}.{made}.backup")
    try:
        backup.touch(mode=0o600)
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("VACUUM INTO ?", (str(backup),))
        with backup.open("rb") as file:
            os.fsync(file.fileno())
    except (sqlite3.Error, OSError) as error:
        backup.unlink(missing_ok=True)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise OutOfDisk(f"There is no room for a backup of {path}; nothing was changed.") from error
        raise DatabaseUnusable(f"No backup of {path} could be made ({error}); nothing was changed.") from error
    return backup
