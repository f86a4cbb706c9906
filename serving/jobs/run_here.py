"""A job run in this process, by the command that asks for it, from the store that gateways and runners share."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from pipeline.documents.document import Document
from pipeline.errors import NothingToResume, WrongState
from pipeline.run.events import Event
from pipeline.run.request import Request
from serving.jobs.attempt import JobRun
from serving.jobs.job import LOCAL_OWNER, Claim, Job, JobRequest, JobState, Lane, NewJob
from serving.jobs.runner import JobRunner
from serving.jobs.store import LEASE_S, JobStore, LeaseWatch
from serving.session import Session
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import prepare_database

Emit = Callable[[Event], None]
_LOOK_S = 1.0
_NOT_OPTIONS = frozenset({"question", "task", "choices", "strategy", "limits"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStore:
    """What is kept of jobs and their documents on this machine, or in the database that the settings name."""

    jobs: JobStore
    files: FileStore


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[LocalStore]:
    """For one event loop. An empty database is made ready. Raises DatabaseUnusable, which says what to do."""
    database = Database.open(settings.database)
    try:
        await prepare_database(database)
        files = FileStore(database, settings.files_dir, max_bytes=settings.max_upload_mib << 20)
        yield LocalStore(jobs=JobStore(database), files=files)
    finally:
        await database.close()


def job_request(request: Request, **more: Any) -> JobRequest:
    """What the command line asks, as a job keeps it: only what differs from the defaults."""
    default = Request(question="")
    given = {field.name: getattr(request, field.name) for field in fields(Request)}
    limits = {field.name: getattr(request.limits, field.name) for field in fields(request.limits)}
    return JobRequest(
        question=request.question,
        strategy=request.strategy,
        task=request.task,
        choices=request.choices,
        options={k: v for k, v in given.items() if k not in _NOT_OPTIONS and v != getattr(default, k)},
        limits={name: value for name, value in limits.items() if value is not None},
        **more,
    )


async def run_new_job(
    settings: Settings,
    session: Session,
    document: Document,
    request: JobRequest,
    emit: Emit,
    begun: Callable[[Job], None],
) -> JobRun:
    """Keep the document and the job, run it, and return when it has ended; `begun` hears its id first.

    Cancelling the awaiting task cancels the job.
    """
    async with open_store(settings) as store:
        name = ", ".join(dict.fromkeys(source.name for source in document.sources))
        ref = await store.files.add_document(document, name)
        new = NewJob(
            owner=LOCAL_OWNER, key_id="", surface="job", lane=Lane.LOCAL, request=replace(request, documents=(ref,))
        )
        job, _ = await store.jobs.submit(new)
        begun(job)
        runner = _runner(settings, session, store)
        claim = await store.jobs.take_up(
            job.id, runner.runner_id, pause_before=request.pause_before, max_steps=request.max_steps
        )
        with _terminated_as_cancelled():
            return await runner.run_one(_claimed(claim), emit)


async def run_job_again(
    settings: Settings, session: Session, job: Job, emit: Emit, *, pause_before: str = "", max_steps: int | None = None
) -> JobRun:
    """The same for a job that was paused, stopped or failed, or whose process has died. Raises WrongState."""
    async with open_store(settings) as store:
        runner = _runner(settings, session, store)
        if job.state is JobState.RUNNING:
            claim: Claim | None = await _take_over(store.jobs, job, runner.runner_id)
        else:
            claim = await store.jobs.take_up(job.id, runner.runner_id, pause_before=pause_before, max_steps=max_steps)
        with _terminated_as_cancelled():
            return await runner.run_one(_claimed(claim), emit)


@contextmanager
def _terminated_as_cancelled() -> Iterator[None]:
    """SIGTERM cancels the current task, as Ctrl-C does: then its job's end can still be written."""
    task, loop, before = asyncio.current_task(), asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)
    if task is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


def _runner(settings: Settings, session: Session, store: LocalStore) -> JobRunner:
    return JobRunner(store.jobs, store.files, session, shared_cache=settings.shared_cache)


def _claimed(claim: Claim | None) -> Claim:
    if claim is None:
        raise NothingToResume("The job was deleted.")
    return claim


async def _take_over(jobs: JobStore, job: Job, runner_id: str) -> Claim:
    """A job whose process died keeps its lease for a while; one whose process lives keeps it for good."""
    watch = LeaseWatch()
    for _ in range(int(LEASE_S / _LOOK_S) + 3):
        if claim := await jobs.take_over(job.id, runner_id, watch):
            return claim
        await asyncio.sleep(_LOOK_S)
    raise WrongState(f"The job is running in another process; `longfold jobs show job_{job.id}` shows how far it is.")
