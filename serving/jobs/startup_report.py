"""How far a runner's start is, told through the database while its main thread waits for Ray and the model."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pipeline.errors import LongfoldError
from serving.jobs.job import RunnerStatus
from serving.jobs.store import JobStore
from serving.storage.database import Database

_LOG = logging.getLogger(__name__)

TELL_S = 2.0
_LAST_WORD_S = 5.0
"""What the last report has; a database that is busy for longer goes without it."""


@contextmanager
def told_start(
    database_url: str, status: RunnerStatus, report: Callable[[str], None]
) -> Iterator[Callable[[str], None]]:
    """Inside, what is reported reaches `report`, and as the runner's message whoever asks how it is.

    A start that fails leaves its reason behind; one that is interrupted leaves nothing.
    """
    telling = _Telling(database_url, status)
    thread = threading.Thread(target=telling.run, name="start-report", daemon=True)
    thread.start()

    def tell(text: str) -> None:
        report(text)
        telling.message = text

    try:
        yield tell
    except Exception as error:
        telling.message = f"it did not start: {error if isinstance(error, LongfoldError) else type(error).__name__}"
        raise
    except BaseException:
        telling.message = ""
        raise
    finally:
        telling.ended.set()
        thread.join(_LAST_WORD_S)


class _Telling:
    """The thread: an event loop and a connection of its own."""

    def __init__(self, database_url: str, status: RunnerStatus) -> None:
        self._database_url = database_url
        self._status = status
        self.message = status.message
        """Empty: there is no such runner any more."""
        self.ended = threading.Event()

    def run(self) -> None:
        with asyncio.Runner() as loop:
            database = Database.open(self._database_url)
            ended = False
            while not ended:
                ended = self.ended.is_set()  # before telling: the last message is told too
                loop.run(self._tell(JobStore(database)))
                self.ended.wait(TELL_S)
            loop.run(database.close())

    async def _tell(self, store: JobStore) -> None:
        self._status = replace(self._status, beat=self._status.beat + 1, message=self.message)
        try:
            if self.message:
                await store.report_runner(self._status)
            else:
                await store.forget_runner(self._status.id)
        except LongfoldError as error:
            _LOG.warning("runner.start_untold", extra={"error": type(error).__name__})
