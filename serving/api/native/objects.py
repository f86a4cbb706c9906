"""A job as the native API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from serving.jobs.job import Job, JobState
from serving.storage.document_ref import DocumentRef

_LINKS = ("events", "result", "evidence", "tree", "text", "cancel", "retry", "checkpoint", "resume")


class JobDocument(BaseModel):
    """A document of a job, and where it stands in the text that all offsets refer to."""

    file_id: str | None
    name: str
    sha256: str
    characters: int
    tokens: int
    start: int


class JobObject(BaseModel):
    """What is known of a job."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "job_01K9ZJ3W5T8Q4V6X2B7N9M1C0D",
                "object": "job",
                "state": "running",
                "question": "Who signed the contract?",
                "strategy": "auto",
                "task": "question_answering",
                "created_at": 1795305600.0,
                "progress": {"stages": {"map": {"calls": 166, "done": 70}}},
                "last_seq": 88,
                "links": {"events": "/v1/jobs/job_01K9ZJ3W5T8Q4V6X2B7N9M1C0D/events"},
            }
        }
    )
    id: str
    object: Literal["job"] = "job"
    state: JobState
    kind: Literal["run", "chat"]
    surface: str
    """Where it came in: job, chat or response."""
    question: str
    strategy: str
    task: str
    choices: list[str]
    documents: list[JobDocument]
    characters: int
    """Of all documents together, as one text."""
    options: dict[str, Any]
    limits: dict[str, Any]
    on_chunk_error: str
    pause_before: str
    """Name of the step before which the job pauses the next time; empty for none."""
    metadata: dict[str, str]
    created_at: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    cancel_requested: bool
    plan: dict[str, Any] | None
    """None until a runner has made it; POST /v1/jobs:estimate tells it before."""
    progress: dict[str, Any] | None
    error: dict[str, Any] | None
    usage: dict[str, Any] | None
    last_seq: int
    links: dict[str, str]


class JobList(BaseModel):
    object: Literal["list"] = "list"
    data: list[JobObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class JobCheckpoint(BaseModel):
    """Where a job is paused, and the state that its next step begins from."""

    object: Literal["job.checkpoint"] = "job.checkpoint"
    job_id: str
    step: int
    """Number of the step in the run, from 1."""
    before: str
    """Its name."""
    state: dict[str, Any]
    """What the run has found so far; `/resume` takes it back changed."""


class JobDeleted(BaseModel):
    id: str
    object: Literal["job"] = "job"
    deleted: Literal[True] = True


def job_path(job: Job) -> str:
    return f"/v1/jobs/job_{job.id}"


def job_object(job: Job) -> JobObject:
    request = job.request
    documents = place_documents(request.documents)
    return JobObject(
        id=f"job_{job.id}",
        state=job.state,
        kind=request.kind,
        surface=job.surface,
        question=request.question,
        strategy=request.strategy,
        task=request.task,
        choices=list(request.choices),
        documents=documents,
        characters=documents[-1].start + documents[-1].characters if documents else 0,
        options=dict(request.options),
        limits=dict(request.limits),
        on_chunk_error=request.on_chunk_error,
        pause_before=request.pause_before,
        metadata=dict(request.metadata),
        created_at=job.created_unix_s,
        started_at=job.started_unix_s,
        finished_at=job.finished_unix_s,
        attempt=job.attempt,
        cancel_requested=job.cancel_requested,
        plan=_copy(job.plan),
        progress=_copy(job.progress),
        error=_copy(job.error),
        usage=_copy(job.usage),
        last_seq=job.last_seq,
        links={"self": job_path(job)} | {name: f"{job_path(job)}/{name}" for name in _LINKS},
    )


def place_documents(refs: tuple[DocumentRef, ...]) -> list[JobDocument]:
    """Where each document begins in the joined text; `Document.join` puts an empty line between two."""
    placed: list[JobDocument] = []
    position = 0
    for ref in refs:
        position += 2 if position else 0
        placed.append(
            JobDocument(
                file_id=ref.file_id or None,
                name=ref.name,
                sha256=ref.text_sha256,
                characters=ref.characters,
                tokens=ref.tokens,
                start=position,
            )
        )
        position += ref.characters
    return placed


def _copy(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if record is None else dict(record)
