"""Every completed call by its content key: resume, cache, exactly-once.

The key covers model, encoded prompt, sampling and schema (`Call.key`), so a resumed run is the same run: no call is
paid twice, and the result is the same. One SQLite file in WAL mode; a full disk costs the journal, never the run.
"""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from pipeline.dispatch import Dispatcher
from pipeline.model import Call, Completion, Outcome, Usage

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S = 5.0
"""After a write that failed: a full disk is not asked at every call, nor given up for good."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, completion TEXT NOT NULL, completed_s REAL NOT NULL);
"""


class Journal:
    """The completed calls of one cache folder. Several processes may share it."""

    def __init__(self, path: Path, *, most_pages: int = 2**30) -> None:
        """Open or create. An unusable file is reported once; the journal is then kept in memory.

        `most_pages` is SQLite's `max_page_count`: beyond it a write fails as on a full disk.
        """
        self._writable = True
        self._try_again_s = 0.0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connect(str(path))
            self._connection.execute(f"PRAGMA max_page_count = {most_pages}")
        except (OSError, sqlite3.Error) as error:
            _LOG.warning("journal.unavailable path=%s error=%s", path, error)
            self._connection = _connect(":memory:")

    def close(self) -> None:
        self._connection.close()

    @property
    def writable(self) -> bool:
        """False while writes fail: what completes meanwhile is not kept for a resume."""
        return self._writable

    def find(self, key: str, run_id: str = "") -> Completion | None:
        """What is known of a call; `own` if it was kept for the run `run_id`."""
        row = self._connection.execute("SELECT completion FROM calls WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        fields = json.loads(row[0])
        return Completion(
            text=fields["text"],
            finish_reason=fields["finish_reason"],
            usage=Usage(**fields["usage"]),
            choice_logprobs=tuple(fields["choice_logprobs"]),
            seconds=fields["seconds"],
            from_journal=True,
            own=bool(run_id) and fields.get("run_id") == run_id,
        )

    def keep(self, key: str, completion: Completion, run_id: str = "") -> None:
        """Keep what the run `run_id` paid for."""
        record = json.dumps(asdict(completion) | {"run_id": run_id})
        self._write("INSERT OR IGNORE INTO calls VALUES (?, ?, ?)", (key, record, time.time()))

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        if not self._writable and time.monotonic() < self._try_again_s:
            return
        try:
            with self._connection:
                self._connection.execute(statement, values)
        except sqlite3.Error as error:
            if self._writable:
                _LOG.warning("journal.write_failed error=%s; what completes from now on cannot be resumed", error)
            self._writable = False
            self._try_again_s = time.monotonic() + _TRY_AGAIN_S
        else:
            self._writable = True


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_SCHEMA)
    return connection


class JournaledDispatcher:
    """A dispatcher that answers from the journal what it can, and keeps what the inner one completes."""

    def __init__(self, inner: Dispatcher, journal: Journal, namespace: str, *, run_id: str = "") -> None:
        """`namespace` is the model's fingerprint, and the owner where owners do not share completions.

        With `run_id`, a resumed run counts what it paid for before as its own: its usage comes out the same.
        """
        self._inner = inner
        self._journal = journal
        self._namespace = namespace
        self._run_id = run_id
        self._counted: set[str] = set()
        """Keys of calls that this run has paid for: the same call once more is from the journal in any case."""

    async def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        remaining = iter(calls)
        for call in remaining:  # what is known at the beginning waits for nothing
            known = self._find(call.key(self._namespace))
            if known is None:
                remaining = itertools.chain([call], remaining)
                break
            yield known
        slots: deque[tuple[str, Completion | None]] = deque()
        """Of each call read so far and not yet yielded: its key, and its completion if the journal has it."""
        async for outcome in self._inner.complete(self._unknown(remaining, slots)):
            while (known := slots[0][1]) is not None:
                slots.popleft()
                yield known
            key, _ = slots.popleft()
            if isinstance(outcome, Completion):
                self._journal.keep(key, outcome, self._run_id)
                self._counted.add(key)
            yield outcome
        for _, known in slots:
            assert known is not None, "the inner dispatcher yields one outcome per call"
            yield known

    def _unknown(self, calls: Iterable[Call], slots: deque[tuple[str, Completion | None]]) -> Iterator[Call]:
        for call in calls:
            key = call.key(self._namespace)
            known = self._find(key)
            slots.append((key, known))
            if known is None:
                yield call

    def _find(self, key: str) -> Completion | None:
        known = self._journal.find(key, self._run_id)
        if known is None or not known.own:
            return known
        if key in self._counted:
            return replace(known, own=False)
        self._counted.add(key)
        return known
