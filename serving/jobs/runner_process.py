"""The life of a runner's process: `longfold runner`, which `longfold serve` starts and keeps."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from serving.cluster import ownership
from serving.jobs.job import Lane, RunnerStatus
from serving.jobs.runner import JobRunner, new_status
from serving.jobs.startup_report import told_start
from serving.jobs.store import JobStore
from serving.logging import configure_json_log
from serving.session import Session, bring_model, open_session
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import check_schema

logger = logging.getLogger(__name__)
_PARENT_CHECK_S = 0.5


def run_runner(settings: Settings, *, parent_pid: int = 0, report: Callable[[str], None]) -> None:
    """Reach or start the cluster, run jobs until SIGTERM or SIGINT, give back what is held.

    With `parent_pid`, also until that process is no longer the parent. The cluster stays: its keeper is a process of
    its own, so that the next runner finds the model loaded.
    """
    configure_json_log(settings.log_level)
    model = bring_model(settings, report)
    logger.info("runner.model name=%s dtype=%s", model.profile.name, model.profile.dtype)
    asyncio.run(_check_database(settings))
    status = new_status(model.profile)
    with ExitStack() as opened:
        with told_start(settings.database, status, report) as tell:
            if not settings.ray_address:
                ownership.start(settings, model.profile, report=tell, server_pid=parent_pid)
            session = opened.enter_context(open_session(settings, model, tell))
        asyncio.run(_run(settings, session, status, parent_pid))


async def run_until_ended(runner: JobRunner, *, parent_pid: int = 0) -> None:
    """Run jobs until a signal, or the parent's end; what is held is given back before this returns."""
    running = asyncio.ensure_future(runner.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    watching = asyncio.ensure_future(_await_orphanhood(parent_pid))
    watching.add_done_callback(lambda _: running.cancel())
    try:
        with suppress(asyncio.CancelledError):
            await running
    finally:
        watching.cancel()


async def _check_database(settings: Settings) -> None:
    database = Database.open(settings.database)
    try:
        await check_schema(database)
    finally:
        await database.close()


async def _run(settings: Settings, session: Session, status: RunnerStatus, parent_pid: int) -> None:
    database = Database.open(settings.database)
    try:
        runner = JobRunner(
            JobStore(database),
            FileStore(database, settings.files_dir, max_bytes=settings.max_upload_mib << 20),
            session,
            places={Lane.LONG: settings.long_jobs, Lane.SHORT: settings.short_jobs},
            shared_cache=settings.shared_cache,
            replica_stats=_replica_stats,
            status=status,
        )
        await run_until_ended(runner, parent_pid=parent_pid)
    finally:
        await database.close()


async def _await_orphanhood(parent_pid: int) -> None:
    while not parent_pid or os.getppid() == parent_pid:  # noqa: ASYNC110  # nothing else tells of a parent's end
        await asyncio.sleep(_PARENT_CHECK_S)


def _replica_stats() -> list[Mapping[str, Any]]:
    from serving.cluster import ray_cluster

    return [asdict(status) for status in ray_cluster.replica_statuses()]
