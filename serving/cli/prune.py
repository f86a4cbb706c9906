"""What `longfold prune` does: now what a running service does by itself every hour."""

from __future__ import annotations

import asyncio

import typer

from serving.jobs.retention import DeletedJobs, Pruned, prune_journal, prune_store
from serving.jobs.store import JobStore
from serving.session import open_journal
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import prepare_database


def prune(settings: Settings) -> None:
    """Remove what is older, or more, than the settings keep, and say how much it was."""
    done = asyncio.run(_prune(settings))
    typer.echo(f"Removed {done.jobs:,} jobs, {done.files:,} files and {done.calls:,} completed calls.")


async def _prune(settings: Settings) -> Pruned:
    database = Database.open(settings.database)
    try:
        await prepare_database(database)
        store = JobStore(database)
        files = FileStore(database, settings.files_dir, max_bytes=settings.max_upload_mib << 20)
        stored = await prune_store(store, files, settings)
        with open_journal(settings) as journal:
            calls = await DeletedJobs(store, journal).forget()
            calls += (await prune_journal(journal, settings)).calls
    finally:
        await database.close()
    return Pruned(jobs=stored.jobs, files=stored.files, calls=calls)
