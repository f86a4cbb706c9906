"""Every completed call by its content key: resume, cache, exactly-once.

The key covers model, encoded prompt, sampling and schema (`Call.key`), so a resumed run is the same run: no call is
paid twice, and the result is the same. One SQLite file in WAL mode. While the disk is full, what completes is kept in
memory, and no further call is paid for until there is room.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path

from pipeline.dispatch.admission import AdmissionQueue
from pipeline.errors import OutOfDisk
from pipeline.llm.model import Call, Completion, Dispatcher, Outcome, Usage
from pipeline.write_turn import WriteTurn

_LOG = logging.getLogger(__name__)
RESERVE_BYTES = 8 << 20
"""Below so much free space no call is begun: what is in flight, and the end of the run, can still be written."""
_TRY_AGAIN_S = 1.0
"""After a write that failed, and between looks whether there is room again."""
_PRUNED_AT_ONCE = 500
"""Calls in one transaction: others wait for it."""
_TURN_S = 10.0
"""How long a write waits for other processes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, completion TEXT NOT NULL, completed_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS run_calls (key TEXT NOT NULL, run_id TEXT NOT NULL,
                                      PRIMARY KEY (key, run_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_calls_by_run ON run_calls (run_id);
CREATE INDEX IF NOT EXISTS calls_by_age ON calls (completed_s);
"""
_USAGE = tuple(field.name for field in fields(Usage))
_Statement = tuple[str, tuple[object, ...]]


class Journal:
    """The completed calls of one cache folder. Several processes may share it."""

    def __init__(
        self,
        path: Path,
        *,
        max_pages: int = 2**30,
        reserve_bytes: int = RESERVE_BYTES,
        try_again_s: float = _TRY_AGAIN_S,
    ) -> None:
        """Open or create. An unusable file is reported once; the journal is then kept in memory.

        `max_pages` is SQLite's `max_page_count`: beyond it a write fails as on a full disk.
        """
        self._folder = path.parent
        self._reserve_bytes = reserve_bytes
        self._try_again_after_s = try_again_s
        self._pending: list[_Statement] = []
        """Not written yet, for the disk is full."""
        self._unwritten: dict[str, str] = {}
        """The completions among them, by key."""
        self._failed = False
        self._try_again_s = 0.0
        self._turn: WriteTurn | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._turn = WriteTurn(path)
            with self._writing():
                self._connection = _connect(str(path))
            self._connection.execute(f"PRAGMA max_page_count = {max_pages}")
        except (OSError, sqlite3.Error) as error:
            _LOG.warning("journal.unavailable path=%s error=%s", path, error)
            self._turn = None
            self._connection = _connect(":memory:")

    def close(self) -> None:
        """What could not be written is tried once more."""
        self._flush(now=True)
        with suppress(sqlite3.Error), self._writing():
            self._connection.close()
        if self._turn is not None:
            self._turn.close()

    @property
    def is_full(self) -> bool:
        """No call is to be paid for: what it completes might not be kept."""
        return self._turn is not None and (bool(self._pending) or self._free_bytes() < self._reserve_bytes)

    async def room(self) -> None:
        """Return when what completes can be kept."""
        while self.is_full:
            self._flush()
            if self.is_full:
                await asyncio.sleep(self._try_again_after_s)

    def _free_bytes(self) -> int:
        try:
            found = os.statvfs(self._folder)
        except OSError:  # it was removed
            return 0
        return found.f_bavail * found.f_frsize

    def find(self, key: str, run_id: str = "") -> Completion | None:
        """What is known of a call; `own` if it was kept for the run `run_id`."""
        found = self._unwritten.get(key)
        if found is None:
            row = self._connection.execute("SELECT completion FROM calls WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            found = row[0]
        fields = json.loads(found)
        own = bool(run_id) and fields.get("run_id") == run_id
        if run_id and not own:
            self._write("INSERT OR IGNORE INTO run_calls VALUES (?, ?)", (key, run_id))
        return Completion(
            text=fields["text"],
            finish_reason=fields["finish_reason"],
            usage=Usage(**fields["usage"]),
            choice_logprobs=tuple(fields["choice_logprobs"]),
            seconds=fields["seconds"],
            from_journal=True,
            own=own,
        )

    def keep(self, key: str, completion: Completion, run_id: str = "") -> None:
        """Keep what the run `run_id` paid for."""
        record = json.dumps(
            {  # not by `asdict`, which copies deeply: a tenth of the driver's time was that
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                "usage": {name: getattr(completion.usage, name) for name in _USAGE},
                "choice_logprobs": completion.choice_logprobs,
                "seconds": completion.seconds,
                "run_id": run_id,
            }
        )
        self._unwritten[key] = record
        self._write(
            "INSERT OR IGNORE INTO calls VALUES (?, ?, ?)",
            (key, record, time.time()),
            ("INSERT OR IGNORE INTO run_calls VALUES (?, ?)", (key, run_id)),
        )

    def forget_runs(self, run_ids: Sequence[str]) -> int:
        """Remove the completions that no other run has used; return how many."""
        removed = 0
        for run_id in run_ids:
            mine = "SELECT key FROM run_calls WHERE run_id = ?"
            others = "SELECT 1 FROM run_calls AS other WHERE other.key = calls.key AND other.run_id != ?"
            removed += self._commit(
                (f"DELETE FROM calls WHERE key IN ({mine}) AND NOT EXISTS ({others})", (run_id, run_id)),  # noqa: S608
                ("DELETE FROM run_calls WHERE run_id = ?", (run_id,)),
            )
        return removed

    def prune(self, *, before_unix_s: float, max_bytes: int) -> int:
        """Remove a few of the completions from before a moment, or of the oldest beyond a size.

        Returns how many completions went, and 0 when nothing is left to remove: call it until then.
        """
        oldest = "SELECT key FROM calls ORDER BY completed_s LIMIT ?"
        old = f"SELECT key FROM ({oldest}) WHERE key IN (SELECT key FROM calls WHERE completed_s < ?)"  # noqa: S608
        which: str = old
        values: tuple[object, ...] = (_PRUNED_AT_ONCE, before_unix_s)
        if self.size_bytes > max_bytes:
            which, values = (oldest, (_PRUNED_AT_ONCE,))
        self._commit((f"DELETE FROM run_calls WHERE key IN ({which})", values))  # noqa: S608
        return self._commit((f"DELETE FROM calls WHERE key IN ({which})", values))  # noqa: S608

    @property
    def size_bytes(self) -> int:
        """That is in use; the file does not shrink, its free pages are written again."""
        pages, free, page = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)

    def _commit(self, *statements: _Statement) -> int:
        """All or nothing: what a person wrote must not be lost without a word. Rows of the first statement."""
        try:
            with self._writing(), self._connection:
                changed = [self._connection.execute(statement, values).rowcount for statement, values in statements]
                return changed[0]
        except sqlite3.Error as error:
            raise OutOfDisk(f"The journal cannot be written ({error}); nothing was changed.") from error

    def _write(self, statement: str, values: tuple[object, ...], *more: _Statement) -> None:
        self._pending += [(statement, values), *more]
        self._flush()

    def _flush(self, *, now: bool = False) -> None:
        """Write what is pending, unless the last attempt failed a moment ago."""
        if not self._pending or (self._failed and not now and time.monotonic() < self._try_again_s):
            return
        try:
            with self._writing(), self._connection:
                for statement, values in self._pending:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            if not self._failed:
                _LOG.warning("journal.write_failed error=%s; no further call is made until it can be written", error)
            self._failed = True
            self._try_again_s = time.monotonic() + self._try_again_after_s
        else:
            self._failed = False
            self._pending.clear()
            self._unwritten.clear()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire_blocking(within_s=_TURN_S):
            raise sqlite3.OperationalError("another process keeps the journal locked")
        try:
            yield
        finally:
            self._turn.release()


def _connect(path: str) -> sqlite3.Connection:
    # Opened in the thread that loads the model, used in the one that runs: never in both at once.
    connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is not left in free pages
    older = _tables(connection) and "run_calls" not in _tables(connection)
    connection.executescript(_SCHEMA)
    if older:
        connection.execute(
            "INSERT OR IGNORE INTO run_calls SELECT key, coalesce(json_extract(completion, '$.run_id'), '') FROM calls"
        )
        connection.commit()
    return connection


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


class JournaledDispatcher:
    """A dispatcher that answers from the journal what it can, and keeps what the inner one completes."""

    def __init__(
        self,
        inner: Dispatcher,
        journal: Journal,
        namespace: str,
        *,
        run_id: str = "",
        admission: AdmissionQueue | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`namespace` is the model's fingerprint, and the owner where owners do not share completions.

        With `run_id`, a resumed run counts what it paid for before as its own: its usage comes out the same.
        `admission`, of as many slots as the inner window, is shared by all runs on the inner dispatcher. `on_wait` is
        told that the run waits for room on the disk, and that it goes on.
        """
        self._inner = inner
        self._journal = journal
        self._namespace = namespace
        self._run_id = run_id
        self._admission = admission or AdmissionQueue(slots=inner.window)
        self._on_wait = on_wait
        self._looking = asyncio.Lock()
        """One call looks for room on the disk, and the others wait for it."""
        self._counted: set[str] = set()
        """Keys of calls that this run has paid for: the same call once more is from the journal in any case."""

    @property
    def window(self) -> int:
        return self._inner.window

    async def complete(self, call: Call) -> Outcome:
        key = call.key(self._namespace)
        if (known := self._find(key)) is not None:
            return known
        # A slot is held from the look at the disk until the completion is written: none that waits behind is paid for
        # when the disk becomes full meanwhile. What stands near an answer does not wait for the others.
        async with self._admission.for_call(call):
            await self._wait_for_room()
            outcome = await self._inner.complete(call)
            if isinstance(outcome, Completion):
                self._journal.keep(key, outcome, self._run_id)
                self._counted.add(key)
        return outcome

    async def _wait_for_room(self) -> None:
        async with self._looking:
            if self._journal.is_full:
                self._on_wait("The disk is full: the run waits, and goes on when there is room.")
                await self._journal.room()
                self._on_wait("There is room on the disk again; the run goes on.")

    def _find(self, key: str) -> Completion | None:
        known = self._journal.find(key, self._run_id)
        if known is None or not known.own:
            return known
        if key in self._counted:
            return replace(known, own=False)
        self._counted.add(key)
        return known
