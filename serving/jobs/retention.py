"""What is kept for how long, and how much of it: jobs, files, completed calls and runs of commands.

Deleting deletes all of it: a job's row, events and result, the texts that no other job or file needs, and in the
journal the completions that belong to it alone.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from pipeline.dispatch.journal import Journal
from serving.jobs.store import JobStore
from serving.settings import Settings
from serving.storage.files import FileStore

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many of each were removed."""

    jobs: int = 0
    files: int = 0
    calls: int = 0


async def prune_store(store: JobStore, files: FileStore, settings: Settings) -> Pruned:
    """Remove jobs and files that are too old or too many, then the bytes and texts that nothing needs any more."""
    now_s = time.time()
    jobs = await store.prune(before_unix_s=_before(now_s, settings.keep_jobs_days), max_jobs=settings.keep_jobs)
    gone = await files.prune(
        before_unix_s=_before(now_s, settings.keep_files_days), max_bytes=int(settings.keep_files_gib * 2**30)
    )
    await files.sweep()
    return Pruned(jobs=jobs, files=gone)


async def prune_journal(journal: Journal, settings: Settings) -> Pruned:
    """Remove completions and runs that are too old, then the oldest completions beyond the size, a few at a time."""
    before_unix_s = _before(time.time(), settings.keep_calls_days)
    calls = 0
    while removed := journal.prune(before_unix_s=before_unix_s, max_bytes=int(settings.keep_calls_gib * 2**30)):
        calls += removed
        await asyncio.sleep(0)  # others run between two writes
    return Pruned(calls=calls)


class DeletedJobs:
    """Takes along, in one journal, what belonged to deleted jobs alone."""

    def __init__(self, store: JobStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._forgotten: set[str] = set()
        self._seen_unix_s = 0.0

    async def forget(self) -> int:
        """Remove what the jobs left that were deleted since the last time; return how many completions."""
        removed = 0
        for job_id, deleted_unix_s in await self._store.deleted_jobs(since_unix_s=self._seen_unix_s - DAY_S):
            if job_id not in self._forgotten:
                removed += self._journal.forget_runs([job_id])
                self._forgotten.add(job_id)
                await asyncio.sleep(0)
            self._seen_unix_s = max(self._seen_unix_s, deleted_unix_s)
        return removed


def _before(now_s: float, days: float) -> float:
    return now_s - days * DAY_S if days else 0.0
