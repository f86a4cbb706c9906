"""The life of a runner's process: `longfold runner`, which `longfold serve` starts and keeps."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pipeline.dispatch.journal import Journal
from pipeline.errors import CapacityError, LongfoldError
from serving.cluster import ownership
from serving.jobs.job import Lane, RunnerStatus
from serving.jobs.retention import prune_journal
from serving.jobs.runner import JobRunner, new_runner_id, new_status
from serving.jobs.store import JobStore
from serving.jobs.supervisor import beat
from serving.logging import configure_json_log
from serving.session import OpenModel, Session, open_session, resolve_model
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import check_schema

logger = logging.getLogger(__name__)
_PARENT_CHECK_S = 0.5
_PRUNE_S = 3600.0
REPORT_S = 2.0
_LAST_WORD_S = 5.0
"""What the last report of a start has; a database that is busy for longer goes without it."""

Report = Callable[[str], None]
Loaded = TypeVar("Loaded")


def run_runner(settings: Settings, *, parent_pid: int = 0, beat_fd: int = -1, report: Report) -> None:
    """Reach or start the cluster, run jobs until SIGTERM or SIGINT, give back what is held.

    With `parent_pid`, also until that process is no longer the parent. The cluster stays: its keeper is a process of
    its own, so that the next runner finds the model loaded.
    """
    configure_json_log(settings.log_level)
    asyncio.run(until_ended(_live(settings, parent_pid, beat_fd, report), parent_pid=parent_pid))


async def until_ended(living: Any, *, parent_pid: int = 0) -> None:
    """Await `living` until a signal, or the parent's end, cancels it."""
    running = asyncio.ensure_future(living)
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


@asynccontextmanager
async def beating(beat_fd: int, runner_id: str) -> AsyncIterator[None]:
    """Inside, the parent hears that this process's loop runs, if there is a pipe for it."""
    beats = [asyncio.create_task(beat(beat_fd, runner_id))] if beat_fd >= 0 else []
    try:
        yield
    finally:
        for task in beats:
            task.cancel()


async def _live(settings: Settings, parent_pid: int, beat_fd: int, report: Report) -> None:
    runner_id = new_runner_id()
    async with beating(beat_fd, runner_id):
        model = await _in_thread(lambda: resolve_model(settings, report))
        logger.info("runner.model name=%s dtype=%s", model.profile.name, model.profile.dtype)
        database = Database.open(settings.database)
        try:
            await check_schema(database)
            store, status = JobStore(database), new_status(model.profile, runner_id)
            with ExitStack() as opened:

                def load(report: Report) -> Session:
                    return _open_session(settings, model, parent_pid, opened, report)

                session = await report_start(store, status, load, report)
                runner = JobRunner(
                    store,
                    FileStore(database, settings.files_dir, max_bytes=settings.max_upload_mib << 20),
                    session,
                    places={Lane.LONG: settings.long_jobs, Lane.SHORT: settings.short_jobs},
                    shared_cache=settings.shared_cache,
                    replica_stats=_replica_stats,
                    status=status,
                )
                pruning = asyncio.create_task(_prune_hourly(session.journal, settings))
                try:
                    await runner.run()
                finally:
                    pruning.cancel()
        finally:
            await database.close()


def _open_session(settings: Settings, model: OpenModel, parent_pid: int, opened: ExitStack, report: Report) -> Session:
    if not settings.ray_address:
        ownership.start(settings, model.profile, report=report, server_pid=parent_pid)
    return opened.enter_context(open_session(settings, model, report))


async def report_start(
    store: JobStore, status: RunnerStatus, load: Callable[[Report], Loaded], report: Report
) -> Loaded:
    """Run `load` in a thread. Meanwhile what it reports is the runner's message to whoever asks how it is.

    A start that fails leaves its reason behind; one that is interrupted leaves nothing.
    """
    message = status.message

    def note(text: str) -> None:
        nonlocal message
        message = text
        report(text)

    async def put() -> None:
        nonlocal status
        status = replace(status, beat=status.beat + 1, message=message)
        try:
            await store.report_runner(status)
        except CapacityError as error:
            logger.warning("runner.start_untold", extra={"error": type(error).__name__})

    loading = asyncio.ensure_future(_in_thread(lambda: load(note)))
    try:
        while not loading.done():
            await put()
            await asyncio.wait({loading}, timeout=REPORT_S)
        return await loading
    except asyncio.CancelledError:
        with suppress(CapacityError):
            await store.forget_runner(status.id)
        raise
    except Exception as error:
        message = f"it did not start: {error if isinstance(error, LongfoldError) else type(error).__name__}"
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                await put()
        raise


async def _in_thread(work: Callable[[], Loaded]) -> Loaded:
    """As `asyncio.to_thread`, but when the process is to end it does not wait for a model that is still loading."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Loaded] = loop.create_future()

    def settle(result: Loaded | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome = (work(), None)
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            outcome = (None, error)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="start", daemon=True).start()
    return await done


async def _prune_hourly(journal: Journal, settings: Settings) -> None:
    while True:
        try:
            pruned = await prune_journal(journal, settings)
            logger.info("journal.pruned", extra={"calls": pruned.calls})
        except CapacityError as error:
            logger.warning("journal.unpruned", extra={"error": type(error).__name__})
        await asyncio.sleep(_PRUNE_S)


async def _await_orphanhood(parent_pid: int) -> None:
    while not parent_pid or os.getppid() == parent_pid:  # noqa: ASYNC110  # nothing else tells of a parent's end
        await asyncio.sleep(_PARENT_CHECK_S)


def _replica_stats() -> list[Mapping[str, Any]]:
    from serving.cluster import ray_cluster

    return [asdict(status) for status in ray_cluster.replica_statuses()]
