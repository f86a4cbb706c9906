"""A job: one run that the gateway owns, from the request that was accepted to the result that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from serving.storage.document_ref import DocumentRef


class JobState(StrEnum):
    """Where a job is in its life: queued → running → one of `TERMINAL`; `retry` leads back to queued.

    A job that was asked to stop before a step is paused there; `resume` leads back to queued.
    """

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})

NEXT: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.PAUSED, *TERMINAL}),  # queued: its runner gave it back
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),  # by `resume`
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),  # by `retry`
    JobState.CANCELLED: frozenset({JobState.QUEUED}),  # by `retry`
}
"""The legal transitions; every other one is a fault of ours."""


class Lane(StrEnum):
    """Jobs of a lane wait only for one another: a short chat does not stand behind a book."""

    SHORT = "short"
    """One call: the raw model, or a document that fits its context."""
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEdit:
    """What a person put in the place of the state before a step."""

    step: int
    """Its number in the run, from 1."""
    before: str
    """The step's name."""
    was: str
    """The state as the run had it, as JSON (`pipeline.run.edits`)."""
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a job is asked. JSON in the database; every field has a default, so old rows stay readable."""

    kind: Literal["run", "chat"] = "run"
    """"run": a strategy on documents. "chat": messages to the raw model, passed through."""
    question: str = ""
    strategy: str = "auto"
    task: str = "question_answering"
    choices: tuple[str, ...] = ()
    documents: tuple[DocumentRef, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `pipeline.run.request.Request` (chunk_tokens, use_gate, ...)."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Fields of `pipeline.run.request.Limits` (calls, tokens, wall_time_s)."""
    on_chunk_error: Literal["continue", "strict"] = "continue"
    """Strict: a chunk that failed for good fails the job."""
    pause_before: str = ""
    """Name of a step: the job is paused before the next one of this name that nobody has looked at."""
    looked_at: int = 0
    """Number of the last step at which a person let the job go on."""
    edits: tuple[StepEdit, ...] = ()
    messages: tuple[Mapping[str, str], ...] = ()
    """Of a chat: role and content, in order."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Of a chat: max_output_tokens, temperature, stop, json_schema, as far as given."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The client's own, given back unread."""
    presentation: Mapping[str, Any] = field(default_factory=dict)
    """What the surface needs to tell of the job in its own terms: the model's name as asked for, how document and
    question were found, what of the result to show. Of JSON types; the runner does not read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be accepted."""

    owner: str
    key_id: str
    """The key that pays; empty without keys."""
    surface: Literal["job", "chat", "response"]
    """Where it came in; ids are `job_X`, `chatcmpl-X`, `resp_X` with the same X."""
    request: JobRequest
    lane: Lane
    body_sha256: str = ""
    """Of path and body as they were sent, to recognise the same request again."""
    idempotency_key: str = ""
    attach_to_same_body: bool = False
    """The client says it is repeating itself: attach to a job of the last 15 minutes with the same body."""
    reserve_tokens: int = 0
    """Taken from the key's budget until the real use is known."""
    background: bool = True
    """False: cancelled when its last client goes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it is stored. Times are Unix seconds, for showing; none decides anything."""

    id: str
    """The bare ULID, without a surface's prefix."""
    owner: str
    key_id: str
    surface: str
    lane: Lane
    state: JobState
    request: JobRequest
    background: bool
    attempt: int
    """1 for the first runner that claimed it; 0 while none has."""
    fence: int
    """Grows with every claim; a write under an older one is refused."""
    last_seq: int
    """Of its events; 0 if there is none."""
    cancel_requested: bool
    created_unix_s: float
    started_unix_s: float | None
    finished_unix_s: float | None
    plan: Mapping[str, Any] | None
    progress: Mapping[str, Any] | None
    """Of each stage: calls expected and done; what a poll shows without reading events."""
    result: Mapping[str, Any] | None
    """`answer_json.answer_record` with more; set if and only if completed."""
    error: Mapping[str, Any] | None
    """type, message, retryable; set if and only if failed."""
    usage: Mapping[str, Any] | None
    """Per stage, as `pipeline.llm.model.Usage` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One line of a job's history; never changed, never removed while the job is kept."""

    seq: int
    """1, 2, 3, ... without gaps within a job."""
    kind: str
    """job.queued, job.started, plan, split, stage.started, call.finished, chunk.gated, chunk.mapped, collapsed,
    provisional, warning, job.paused, job.completed, job.failed, job.cancelled."""
    data: Mapping[str, Any]
    created_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be appended."""

    kind: str
    data: Mapping[str, Any]
    key: str = ""
    """Says what it is about. A second event of a job with the same key is dropped: a resumed run tells again
    what the run before it has told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run a job, as long as the fence holds."""

    job: Job
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStatus:
    """What a runner says of itself, every two seconds."""

    id: str
    pid: int
    beat: int
    """Grows with each report. A reader that sees it stand still, by its own clock, takes the runner for dead."""
    ready: bool
    """A canary, or a real call, came back within the last minute."""
    message: str
    """What it is doing, or why it is not ready."""
    since_unix_s: float = 0.0
    """When it became ready, or ceased to be; a new one is not ready from its start on."""
    model: str
    model_fingerprint: str
    context_tokens: int
    replicas: tuple[Mapping[str, Any], ...] = ()
    """`ReplicaStats` of each."""
