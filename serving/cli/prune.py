"""What `longfold jobs prune` does: now what a running service does by itself every hour."""

from __future__ import annotations

import asyncio

import typer

from serving.jobs.retention import DeletedJobs, Pruned, prune_journal, prune_store
from serving.jobs.run_here import open_store
from serving.session import open_journal
from serving.settings import Settings


def prune(settings: Settings) -> None:
    """Remove what is older, or more, than the settings keep, and say how much it was."""
    done = asyncio.run(_prune(settings))
    typer.echo(f"Removed {done.jobs:,} jobs, {done.files:,} files and {done.calls:,} completed calls.")


async def _prune(settings: Settings) -> Pruned:
    async with open_store(settings) as store:
        stored = await prune_store(store.jobs, store.files, settings)
        with open_journal(settings) as journal:
            calls = await DeletedJobs(store.jobs, journal).forget()
            calls += (await prune_journal(journal, settings)).calls
    return Pruned(jobs=stored.jobs, files=stored.files, calls=calls)
