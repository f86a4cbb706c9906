"""One database for each test: SQLite in its folder, and Postgres of one server for all where its programs are found."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from ulid import ULID

from serving.jobs.store import JobStore
from serving.storage.database import Database
from serving.storage.migrate import prepare_database
from serving.storage.schema import metadata
from tests.integration.storage.factories import Clock


def _find_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a server of our own, on a socket only, without the name of a database."""
    programs = _find_programs()
    if programs is None:
        pytest.skip("no Postgres: initdb is neither under /usr/lib/postgresql nor on the path")
    user = pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None  # Postgres refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="longfold-postgres-"))
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(programs / program), *arguments],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no Postgres: {program} failed ({done.stderr.decode('utf-8', 'replace').strip()[-200:]})")

    data = str(folder / "data")
    options = f"-c listen_addresses='' -k {folder} -c fsync=off -c max_connections=200"
    try:
        run("initdb", "-D", data, "-U", "longfold", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        yield f"postgresql://longfold@/{{name}}?host={folder}"
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
async def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    pattern: str = request.getfixturevalue("postgres")
    name = f"test_{ULID()}".lower()
    connection = await asyncpg.connect(pattern.format(name="postgres"))
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return pattern.format(name=name)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database with our tables, all empty. On Postgres it is one for all tests: making one takes too long."""
    return url_of(request.param, request, tmp_path)


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}"
    pattern: str = request.getfixturevalue("postgres")
    return pattern.format(name="postgres")


_PREPARED: list[bytes] = []
"""A new SQLite file with our tables: copying it costs less than making them."""


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = Database.open(url)
    if opened.path is not None:
        if not _PREPARED:
            await prepare_database(opened)
            _PREPARED.append(opened.path.read_bytes())
        opened.path.write_bytes(_PREPARED[0])
    else:
        await prepare_database(opened)
        async with opened.write() as connection:
            names = ", ".join(metadata.tables)
            await connection.execute(text(f"TRUNCATE {names}"))
    yield opened
    await opened.close()


@pytest.fixture
async def other(url: str, database: Database) -> AsyncIterator[Database]:
    """The same database by another pool, as another process has it."""
    opened = Database.open(url)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database, clock: Clock) -> JobStore:
    return JobStore(database, now=clock.unix_s)
