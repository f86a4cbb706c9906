"""Every completed call by its content key, and every run with its checkpoints: resume, cache, exactly-once.

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
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.dispatch import Dispatcher
from pipeline.errors import OutOfDisk
from pipeline.llm.model import Call, Completion, Outcome, Usage
from pipeline.run.checkpoints import Checkpoint

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S = 5.0
"""After a write that failed: a full disk is not asked at every call, nor given up for good."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, completion TEXT NOT NULL, completed_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, request TEXT NOT NULL, started_s REAL NOT NULL,
                                 finished_s REAL, answer TEXT);
CREATE TABLE IF NOT EXISTS checkpoints (run_id TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
                                        state TEXT NOT NULL, edited TEXT, paused INTEGER NOT NULL,
                                        origin TEXT NOT NULL, PRIMARY KEY (run_id, number));
"""
_RUN_COLUMNS = "run_id, request, started_s, finished_s, answer"
_CHECKPOINT_COLUMNS = "number, name, state, edited, paused, origin"
_Statement = tuple[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as it was asked for; `request` is what its owner needs to ask again."""

    run_id: str
    request: dict[str, Any]
    started_s: float
    finished_s: float | None
    answer: str | None
    """Its text, once the run is finished."""


class Journal:
    """The calls and runs of one cache folder. Several processes may share it."""

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

    def start_run(self, run_id: str, request: dict[str, Any]) -> None:
        self._write(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, NULL, NULL)", (run_id, json.dumps(request), time.time())
        )

    def finish_run(self, run_id: str, answer: str = "") -> None:
        self._write("UPDATE runs SET finished_s = ?, answer = ? WHERE run_id = ?", (time.time(), answer, run_id))

    def find_run(self, run_id: str = "") -> RunRecord | None:
        """The run with this id or unique beginning of one; without one, the latest that did not finish."""
        where, values = ("run_id LIKE ?", (f"{run_id}%",)) if run_id else ("finished_s IS NULL", ())
        return next(self._runs(f"WHERE {where}", values), None)

    def latest_runs(self, most: int) -> list[RunRecord]:
        return list(itertools.islice(self._runs(), most))

    def _runs(self, where: str = "", values: tuple[object, ...] = ()) -> Iterator[RunRecord]:
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs {where} ORDER BY started_s DESC",  # noqa: S608 fixed text
            values,
        )
        for run_id, request, started_s, finished_s, answer in rows:
            yield RunRecord(
                run_id=run_id, request=json.loads(request), started_s=started_s, finished_s=finished_s, answer=answer
            )

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        """In the order of the steps."""
        return list(self._checkpoints(run_id, "ORDER BY number"))

    def last_checkpoint(self, run_id: str) -> Checkpoint | None:
        return next(self._checkpoints(run_id, "ORDER BY number DESC LIMIT 1"), None)

    def _checkpoints(self, run_id: str, order: str) -> Iterator[Checkpoint]:
        rows = self._connection.execute(
            f"SELECT {_CHECKPOINT_COLUMNS} FROM checkpoints WHERE run_id = ? {order}",  # noqa: S608 fixed text
            (run_id,),
        )
        for number, name, state, edited, paused, origin in rows:
            yield Checkpoint(number=number, name=name, state=state, edited=edited, paused=bool(paused), origin=origin)

    def keep_checkpoint(self, run_id: str, checkpoint: Checkpoint) -> None:
        self._write(*_insert_checkpoint(run_id, checkpoint))

    def edit_run(self, run_id: str, at: Checkpoint) -> None:
        """Put the edited checkpoint into the run, whose later ones then no longer hold. Raises OutOfDisk."""
        self._commit(
            _insert_checkpoint(run_id, at),
            ("DELETE FROM checkpoints WHERE run_id = ? AND number > ?", (run_id, at.number)),
            ("UPDATE runs SET finished_s = NULL, answer = NULL WHERE run_id = ?", (run_id,)),
        )

    def fork_run(self, run_id: str, fork_id: str, at: Checkpoint) -> None:
        """Begin `fork_id` with the request and the checkpoints of a run, up to the edited one. Raises OutOfDisk."""
        before = [checkpoint for checkpoint in self.checkpoints(run_id) if checkpoint.number < at.number]
        inherited = [replace(checkpoint, origin=checkpoint.origin or run_id) for checkpoint in before]
        inherited.append(replace(at, origin=run_id))
        self._commit(
            (
                f"INSERT INTO runs ({_RUN_COLUMNS}) SELECT ?, request, ?, NULL, NULL FROM runs WHERE run_id = ?",  # noqa: S608
                (fork_id, time.time(), run_id),
            ),
            *(_insert_checkpoint(fork_id, checkpoint) for checkpoint in inherited),
        )

    def _commit(self, *statements: _Statement) -> None:
        """All or nothing: what a person wrote must not be lost without a word."""
        try:
            with self._connection:
                for statement, values in statements:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise OutOfDisk(f"The journal cannot be written ({error}); nothing was changed.") from error

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
    if "answer" not in {row[1] for row in connection.execute("PRAGMA table_info(runs)")}:  # of an earlier version
        with suppress(sqlite3.OperationalError):  # another process was faster
            connection.execute("ALTER TABLE runs ADD COLUMN answer TEXT")
    return connection


def _insert_checkpoint(run_id: str, checkpoint: Checkpoint) -> _Statement:
    values = tuple(getattr(checkpoint, name) for name in _CHECKPOINT_COLUMNS.split(", "))
    return (
        f"INSERT OR REPLACE INTO checkpoints (run_id, {_CHECKPOINT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (run_id, *values),
    )


class RunHistory:
    """The checkpoints of one run in the journal, as its steps see them (`steps.History`)."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.run_id = run_id
        self._journal = journal
        self._known = {checkpoint.number: checkpoint for checkpoint in journal.checkpoints(run_id)}

    @property
    def paused_at(self) -> int:
        return max((number for number, known in self._known.items() if known.paused), default=0)

    def find(self, number: int) -> Checkpoint | None:
        return self._known.get(number)

    def save(self, number: int, name: str, state: str, *, paused: bool) -> None:
        """An unchanged one is not written again."""
        known = self._known.get(number)
        checkpoint = Checkpoint(number=number, name=name, state=state, paused=paused)
        if known is not None:
            checkpoint = replace(checkpoint, edited=known.edited, paused=paused or known.paused, origin=known.origin)
        if checkpoint != known:
            self._known[number] = checkpoint
            self._journal.keep_checkpoint(self.run_id, checkpoint)


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
