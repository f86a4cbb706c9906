"""The database that gateways and runners share: SQLite on one machine, or Postgres.

Transactions are the only way in. On SQLite every write transaction begins IMMEDIATE, and the journal is the rollback
journal, not the WAL: SQLite versions that distributions ship can lose a WAL's content when several processes write
(sqlite.org/wal.html#walresetbug). What drivers raise is translated here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from pipeline.errors import DatabaseBusy, DatabaseUnusable, LongfoldError, OutOfDisk, SettingInvalid

LOCK_S = 5.0
"""How long a transaction waits for a lock that another process holds."""
TURN_S = 60.0
"""How long a write waits for the writes of its own process that came before it; a thousand may stand in line."""
_CONNECTIONS = 8

_SQLITE_FAULTS: dict[int, type[LongfoldError]] = {
    sqlite3.SQLITE_BUSY: DatabaseBusy,
    sqlite3.SQLITE_LOCKED: DatabaseBusy,
    sqlite3.SQLITE_FULL: OutOfDisk,
    sqlite3.SQLITE_IOERR: OutOfDisk,  # a write over a file-size limit; a disk that fails needs an operator just so
    sqlite3.SQLITE_CORRUPT: DatabaseUnusable,
    sqlite3.SQLITE_NOTADB: DatabaseUnusable,
    sqlite3.SQLITE_READONLY: DatabaseUnusable,
    sqlite3.SQLITE_CANTOPEN: DatabaseUnusable,
    sqlite3.SQLITE_PERM: DatabaseUnusable,
}
"""By primary result code."""
_POSTGRES_FAULTS: dict[str, type[LongfoldError]] = {
    "08": DatabaseBusy,  # connection lost
    "40": DatabaseBusy,  # deadlock, serialization
    "53100": OutOfDisk,
    "53": DatabaseBusy,  # too many connections, out of memory
    "55P03": DatabaseBusy,  # lock not available
    "57": DatabaseBusy,  # shutting down, starting, cancelled
    "28": DatabaseUnusable,  # password
    "3D": DatabaseUnusable,  # no such database
    "42501": DatabaseUnusable,  # no privilege
    "42P01": DatabaseUnusable,  # no such table
}
"""By SQLSTATE or its class; the longer one counts."""


class Database:
    """A pool of connections. One per event loop."""

    def __init__(self, url: str, engine: AsyncEngine, *, turn_s: float = TURN_S) -> None:
        self.url = url
        self._engine = engine
        self._turn_s = turn_s
        self._turn = asyncio.Lock()
        """SQLite has one writer; in this process they queue here, fairly, and not in SQLite's polling."""

    @classmethod
    def open(cls, url: str, *, lock_s: float = LOCK_S, turn_s: float = TURN_S) -> Database:
        """`sqlite:////absolute/path` or `postgresql://...`. Connects when first used, and creates no table."""
        parsed = _parse(url)
        if parsed.get_backend_name() == "sqlite":
            return cls(url, _sqlite_engine(parsed, lock_s), turn_s=turn_s)
        return cls(url, _postgres_engine(parsed, lock_s), turn_s=turn_s)

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    @property
    def shown_url(self) -> str:
        """Without the password."""
        return make_url(self.url).render_as_string(hide_password=True)

    @property
    def path(self) -> Path | None:
        """Of the file, on SQLite."""
        return Path(str(self._engine.url.database)) if self.is_sqlite else None

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One snapshot (on Postgres: of each statement); nothing is written."""
        with self._translated():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end, rolled back by any exception.

        Raises DatabaseBusy for a lock that stays, OutOfDisk for a full disk; nothing is written then.
        """
        with self._translated():
            if not self.is_sqlite:
                async with self._engine.begin() as connection:
                    yield connection
                return
            async with self._own_turn(), self._engine.connect() as connection:
                await connection.execution_options(immediate=True)
                async with connection.begin():
                    yield connection

    async def check_integrity(self) -> None:
        """Read all of a SQLite file. Raises DatabaseUnusable if it is damaged; Postgres sees to itself."""
        if not self.is_sqlite:
            return
        async with self.read() as connection:
            [(found,)] = await connection.exec_driver_sql("PRAGMA integrity_check(1)")
        if found != "ok":
            raise DatabaseUnusable(f"The database {self.shown_url} is damaged ({found}); restore a backup.")

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._turn_s):
                await self._turn.acquire()
        except TimeoutError:
            raise DatabaseBusy("More is to be written than the disk takes; try again in a moment.") from None
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.TimeoutError as error:  # of the pool
            raise DatabaseBusy from error
        except exc.DBAPIError as error:
            fault = _fault_of(error)
            if fault is None:
                raise
            reason = str(error.orig).splitlines()[0][:200]
            if fault is DatabaseUnusable:
                raise DatabaseUnusable(
                    f"The database {self.shown_url} cannot be used: {reason}. Run `longfold db check`."
                ) from error
            raise fault(f"{(fault.__doc__ or '').strip().rstrip('.')} ({reason}).") from error
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            if self.is_sqlite:
                raise
            raise DatabaseBusy(f"The database {self.shown_url} cannot be reached ({error}); try again.") from error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise SettingInvalid(f"LONGFOLD_DATABASE_URL cannot be read. {_EXPECTED}") from None
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+asyncpg")
    if parsed.drivername == "sqlite" and parsed.database and Path(parsed.database).is_absolute():
        return parsed.set(drivername="sqlite+aiosqlite")
    raise SettingInvalid(f"LONGFOLD_DATABASE_URL names {parsed.render_as_string(hide_password=True)!r}. {_EXPECTED}")


_EXPECTED = "Expected is sqlite:////absolute/path or postgresql://user:password@host/name."


def _sqlite_engine(url: URL, lock_s: float) -> AsyncEngine:
    folder = Path(str(url.database)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        Path(str(url.database)).touch(mode=0o600)
    except OSError as error:
        raise DatabaseUnusable(f"The database {url.database} cannot be made: {error.strerror}.") from error
    engine = create_async_engine(
        url, connect_args={"timeout": lock_s}, pool_size=_CONNECTIONS, max_overflow=0, pool_timeout=TURN_S
    )

    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin below, not by the driver
        cursor = connection.cursor()
        for pragma in ("journal_mode = TRUNCATE", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin(connection: Connection) -> None:
        wanted = "BEGIN IMMEDIATE" if connection.get_execution_options().get("immediate") else "BEGIN"
        connection.exec_driver_sql(wanted)

    _listen(engine, "connect", prepare)
    _listen(engine, "begin", begin)
    return engine


def _postgres_engine(url: URL, lock_s: float) -> AsyncEngine:
    if "sslmode" in url.query:  # the spelling of every other client
        url = url.set(query={**{k: v for k, v in url.query.items() if k != "sslmode"}, "ssl": url.query["sslmode"]})
    settings = {
        "application_name": "longfold",
        "lock_timeout": f"{lock_s * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{TURN_S * 1000:.0f}",
        "jit": "off",
    }
    return create_async_engine(
        url,
        connect_args={"server_settings": settings, "timeout": lock_s, "command_timeout": TURN_S},
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=TURN_S,
        pool_pre_ping=True,
    )


def _listen(engine: AsyncEngine, name: str, listener: Callable[..., None]) -> None:
    event.listen(engine.sync_engine, name, listener)


def _fault_of(error: exc.DBAPIError) -> type[LongfoldError] | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE_FAULTS.get(code & 0xFF)
    state = str(getattr(error.orig, "sqlstate", None) or "")
    if error.connection_invalidated or (not state and isinstance(error, exc.InterfaceError)):
        return DatabaseBusy
    return _POSTGRES_FAULTS.get(state) or _POSTGRES_FAULTS.get(state[:2])
