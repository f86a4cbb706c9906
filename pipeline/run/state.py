"""What a run has done so far, added up from its events; both displays are drawn from this."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.llm.model import Stage
from pipeline.run.events import CallEnded, ChunkMapped, Event, Planned, StageStarted
from pipeline.run.plan import Plan

_SHORTEST_S = 1.0
"""Over less time than this a rate is noise: a stage may be known only from its first outcome on."""


@dataclass(slots=True)
class StageProgress:
    """One stage at one moment."""

    started_s: float
    calls: int | None = None
    """Expected; None where the document decides on the way."""
    done: int = 0
    """Failed ones included."""
    failed: int = 0
    known: int = 0
    """Of `done`, answered by the journal: they cost nothing and say nothing about the speed."""
    kept: int | None = None
    """Chunks that the stage let pass: from the gate to the map, from the map as findings."""
    computed_tokens: int = 0
    """Prompt and output tokens, without those found in the prefix cache or the journal."""
    last_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Zero until there is something to go by."""
        seconds = self.last_s - self.started_s
        return self.computed_tokens / seconds if seconds >= _SHORTEST_S else 0.0

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until the expected calls are done, at the pace so far; None if nothing tells."""
        paid = self.done - self.known
        if self.calls is None or paid < 1 or self.done >= self.calls:
            return None
        pace_s = (self.last_s - self.started_s) / paid
        return max(0.0, pace_s * (self.calls - self.done) - (now_s - self.last_s))


@dataclass(slots=True)
class RunProgress:
    """Fed with every event of one run, in order."""

    clock: Callable[[], float] = time.monotonic
    plan: Plan | None = None
    stages: dict[Stage, StageProgress] = field(default_factory=dict)
    """In the order in which they began."""
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    @property
    def computed_tokens(self) -> int:
        """Of all stages: without what came from the prefix cache or the journal."""
        return sum(stage.computed_tokens for stage in self.stages.values())

    def add(self, event: Event) -> None:
        match event:
            case Planned():
                self.plan = event.plan
            case StageStarted():
                self._stage(event.stage).calls = event.calls
                if event.stage is Stage.MAP and Stage.GATE in self.stages:
                    gate = self.stages[Stage.GATE]  # chunks may be read again in a later round
                    gate.kept = event.calls if gate.calls is None else min(event.calls, gate.calls)
            case CallEnded():
                self._count(event)
            case ChunkMapped():
                stage = self._stage(Stage.MAP)
                stage.kept = (stage.kept or 0) + (event.finding is not None)
            case _:
                pass

    def _count(self, event: CallEnded) -> None:
        stage = self._stage(event.stage)
        stage.done += 1
        stage.failed += event.failed is not None
        stage.known += event.from_journal
        if stage.calls is not None:
            stage.calls = max(stage.calls, stage.done)  # a malformed output is asked for once more
        if not event.from_journal:
            usage = event.usage
            stage.computed_tokens += usage.prompt_tokens - usage.cached_tokens + usage.output_tokens
            stage.last_s = self.clock()

    def _stage(self, stage: Stage) -> StageProgress:
        if stage not in self.stages:
            now_s = self.clock()
            # Without a StageStarted the first event is an end: the stage began before, and so has no pace yet.
            self.stages[stage] = StageProgress(started_s=now_s, last_s=now_s)
        return self.stages[stage]
