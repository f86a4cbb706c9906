"""The state of a run, added up from its events; whatever shows, counts or reports a run reads it here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pipeline.documents.document import Span
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Finding
from pipeline.llm.model import LIMIT_REACHED, CallFailed, Stage, Usage
from pipeline.run.checkpoints import Checkpoint
from pipeline.run.events import (
    CallEnded,
    ChunkGated,
    ChunkMapped,
    Collapsed,
    Event,
    Finished,
    Planned,
    Provisional,
    Split,
    StageStarted,
    StepReached,
    Warned,
    Written,
)
from pipeline.run.plan import Plan

MIN_RATE_S = 1.0
"""Over less time than this a rate is noise: a stage may be known only from its first outcome on."""


class ChunkOutcome(StrEnum):
    """What became of a chunk so far."""

    WAITING = "waiting"
    GATED = "gated"
    """Its relevance was scored; it was not read closely (yet)."""
    MAPPED = "mapped"
    EMPTY = "empty"
    """It was read and holds nothing about the question."""
    FAILED = "failed"


@dataclass(slots=True)
class ChunkState:
    span: Span | None = None
    outcome: ChunkOutcome = ChunkOutcome.WAITING
    score: float | None = None
    """Of the gate."""
    finding: Finding | None = None
    is_mapped: bool = False
    """Whether the map reported it, with a finding or without."""
    failed_stage: Stage | None = None
    error: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class StageState:
    """`started_s` and `last_s` are on the run's clock."""

    started_s: float
    calls: int | None = None
    """Expected; None where the document decides on the way."""
    done: int = 0
    """Failed ones included."""
    failed: int = 0
    last_failed: bool = False
    """Whether the latest outcome was a failure."""
    from_journal: int = 0
    """Of `done`, answered by the journal: they cost nothing now and say nothing about the speed."""
    kept: int | None = None
    """Chunks that the stage let pass: from the gate to the map, from the map as findings."""
    usage: Usage = field(default_factory=Usage)
    """What this run paid for."""
    completion_usage: Usage = field(default_factory=Usage)
    """What the completions took when they were made, those of earlier runs included."""
    computed_tokens: int = 0
    """Prompt and output tokens, without those found in the prefix cache or the journal."""
    last_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Zero until there is something to go by."""
        seconds = self.last_s - self.started_s
        return self.computed_tokens / seconds if seconds >= MIN_RATE_S else 0.0

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until the expected calls are done, at the pace so far; None if nothing tells."""
        paid = self.done - self.from_journal
        if self.calls is None or paid < 1 or self.done >= self.calls:
            return None
        pace_s = (self.last_s - self.started_s) / paid
        return max(0.0, pace_s * (self.calls - self.done) - (now_s - self.last_s))


@dataclass(slots=True)
class RunState:
    """Apply every event of one run, in order. The same events give the same state, times aside."""

    clock: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    plan: Plan | None = None
    stages: dict[Stage, StageState] = field(default_factory=dict)
    """In the order in which they began."""
    chunks: list[ChunkState] = field(default_factory=list)
    """By index; as many as were split, or heard of."""
    collapses: list[Collapsed] = field(default_factory=list)
    steps: dict[int, Checkpoint] = field(default_factory=dict)
    """By number: the states that its steps began from."""
    answer: Answer | None = None
    """The answer so far, or the last."""
    first_answer_s: float | None = None
    """From the start of the run."""
    written: str = ""
    """What the model has written so far of a conversation's next message."""
    warnings: list[str] = field(default_factory=list)
    failures: list[CallFailed] = field(default_factory=list)
    """Of calls, in the order in which they came; a limit that keeps a call back is none."""
    is_finished: bool = False

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    @property
    def usage(self) -> dict[Stage, Usage]:
        """What this run paid for, by stage."""
        return {stage: at.usage for stage, at in self.stages.items() if at.done}

    @property
    def computed_tokens(self) -> int:
        return sum(at.computed_tokens for at in self.stages.values())

    @property
    def findings(self) -> list[Finding]:
        """Of the map, in document order."""
        return [chunk.finding for chunk in self.chunks if chunk.finding is not None]

    def apply(self, event: Event) -> None:  # noqa: C901, PLR0912  one case per event
        """Take in one event."""
        match event:
            case Planned():
                self.plan = event.plan
            case Split():
                self._split(event.spans)
            case StageStarted():
                self._stage(event.stage).calls = event.calls
                if event.stage is Stage.MAP and Stage.GATE in self.stages:
                    gate = self.stages[Stage.GATE]  # chunks may be read again in a later round
                    gate.kept = event.calls if gate.calls is None else min(event.calls, gate.calls)
            case CallEnded():
                self._count_call(event)
            case ChunkGated():
                chunk = self._chunk(event.chunk_index)
                chunk.score = event.score
                if chunk.outcome in (ChunkOutcome.WAITING, ChunkOutcome.FAILED):
                    chunk.outcome, chunk.error, chunk.failed_stage = ChunkOutcome.GATED, "", None
            case ChunkMapped():
                self._map(event)
            case Collapsed():
                self.collapses.append(event)
            case StepReached():
                at, known = event.checkpoint, self.steps.get(event.checkpoint.number)
                # A fork comes again to the states that it has from its origin.
                self.steps[at.number] = replace(at, origin=known.origin) if known and known.state == at.state else at
            case Provisional():
                self.answer = event.answer
                if self.first_answer_s is None:
                    self.first_answer_s = self.elapsed_s
            case Written():
                self.written = event.text
            case Warned():
                self.warnings.append(event.message)
            case Finished():
                self.answer, self.is_finished = event.answer, True

    def _split(self, spans: Sequence[Span]) -> None:
        """A run that is split anew, or resumed, begins its chunks anew."""
        self.chunks = [ChunkState(span=span) for span in spans]

    def _map(self, event: ChunkMapped) -> None:
        stage, chunk = self._stage(Stage.MAP), self._chunk(event.chunk_index)
        stage.kept = (stage.kept or 0) + (event.finding is not None)
        chunk.finding, chunk.is_mapped = event.finding, True
        if event.finding is not None:
            chunk.outcome, chunk.error, chunk.failed_stage = ChunkOutcome.MAPPED, "", None
        elif chunk.failed_stage is not Stage.MAP:  # a chunk whose map call failed is reported without a finding too
            chunk.outcome, chunk.error = ChunkOutcome.EMPTY, ""

    def _count_call(self, event: CallEnded) -> None:
        stage = self._stage(event.stage)
        stage.done += 1
        stage.failed += event.failed is not None
        stage.last_failed = event.failed is not None
        stage.from_journal += event.from_journal
        stage.usage += event.usage
        stage.completion_usage += event.completion_usage
        if stage.calls is not None:
            stage.calls = max(stage.calls, stage.done)  # a malformed output is asked for once more
        if not event.from_journal:
            usage = event.usage
            stage.computed_tokens += usage.prompt_tokens - usage.cached_tokens + usage.output_tokens
            stage.last_s = self.clock()
        if event.failed is not None and event.failed.error != LIMIT_REACHED:
            self.failures.append(event.failed)
        if event.chunk_index is not None:
            self._count_chunk_call(self._chunk(event.chunk_index), event)

    def _count_chunk_call(self, chunk: ChunkState, event: CallEnded) -> None:
        chunk.usage += event.usage
        if event.failed is None:
            if chunk.failed_stage is event.stage:  # asked again, and answered
                chunk.outcome, chunk.error, chunk.failed_stage = ChunkOutcome.WAITING, "", None
        elif (
            event.stage in (Stage.GATE, Stage.MAP)
            and event.failed.error != LIMIT_REACHED
            and chunk.outcome is not ChunkOutcome.MAPPED
        ):
            chunk.outcome, chunk.error, chunk.failed_stage = ChunkOutcome.FAILED, event.failed.error, event.stage

    def _stage(self, stage: Stage) -> StageState:
        if stage not in self.stages:
            now_s = self.clock()
            # Without a StageStarted the first event is an end: the stage began before, and so has no pace yet.
            self.stages[stage] = StageState(started_s=now_s, last_s=now_s)
        return self.stages[stage]

    def _chunk(self, index: int) -> ChunkState:
        while len(self.chunks) <= index:
            self.chunks.append(ChunkState())
        return self.chunks[index]
