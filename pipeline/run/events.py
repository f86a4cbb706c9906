"""What a run tells while it works. A reader needs no other source to show progress."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.documents.document import Span
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Finding
from pipeline.llm.model import CallFailed, Stage, Usage
from pipeline.run.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where the chunks stand in the document. Chunk i of every later event is `spans[i]`."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    stage: Stage
    calls: int
    """Expected now; a later event for the same stage replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """One call came back, or failed for good."""

    stage: Stage
    chunk_index: int | None
    usage: Usage
    failed: CallFailed | None
    from_journal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGated:
    chunk_index: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkMapped:
    """`finding` is None if the chunk held no information or what it held was not supported."""

    chunk_index: int
    finding: Finding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapsed:
    """What some neighbouring chunks said became one, in pass `depth`, counted from 1."""

    depth: int
    chunk_indices: tuple[int, ...]
    text: str = ""
    """What it became."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisional:
    """The best verified answer so far; it may be overturned, and `reason` says why it changed."""

    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the model has written so far of an answer that needs no reading: a conversation's next message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    answer: Answer


Event = (
    Planned
    | Split
    | StageStarted
    | CallEnded
    | ChunkGated
    | ChunkMapped
    | Collapsed
    | Provisional
    | Written
    | Warned
    | Finished
)
