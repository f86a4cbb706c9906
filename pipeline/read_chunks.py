"""Reading a document for one question: gate, map and support check of its chunks, the promising ones first.

The gate passes over all chunks in best-first order. What scores clearly is mapped at once, while the pass goes on;
the doubtful rest when all scores are in. Every chunk ends as read, unread or failed, exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.answer import Coverage, FailedChunk
from pipeline.calibrate import Calibration
from pipeline.coverage import failed_chunk
from pipeline.dispatch import Dispatcher
from pipeline.document import Document
from pipeline.errors import MalformedOutput
from pipeline.events import ChunkGated, ChunkMapped, StageStarted
from pipeline.finding import Evidence, Finding
from pipeline.frontier import Frontier
from pipeline.gate_chunks import gate_call, keep_chunks, relevance, yes_score
from pipeline.map_chunks import judge_finding, map_call, read_finding, support_call
from pipeline.model import Call, CallFailed, Completion, Stage
from pipeline.parse_outcomes import warmer
from pipeline.run import Request, Resources
from pipeline.split_document import Chunk
from pipeline.tasks import Task


@dataclass(slots=True, kw_only=True)
class Reading:
    """What one run knows of its chunks, filled in as outcomes arrive."""

    document: Document
    chunks: Sequence[Chunk]
    order: Sequence[int]
    """Chunk indices in the order of sending."""
    lexical: Sequence[float]
    """Of each chunk, how close its words are to the question's, 0 to 1."""
    question_ids: Sequence[int]
    task: Task
    request: Request
    resources: Resources
    dispatcher: Dispatcher
    on_finding: Callable[[Finding], None]
    """Told of each supported finding as it arrives."""
    known: tuple[Evidence, ...] = ()
    """What another part was seen to say; stands beside the evidence of every finding."""
    frontier: Frontier = field(init=False)
    scores: dict[int, float] = field(default_factory=dict)
    """Relevance of each gated chunk, in nats."""
    mapped: set[int] = field(default_factory=set)
    failed: dict[int, FailedChunk] = field(default_factory=dict)
    dropped: list[Finding] = field(default_factory=list)
    """What was found and not supported: no answer, but perhaps a step towards one (`follow_clue.py`)."""

    def __post_init__(self) -> None:
        self.frontier = Frontier(len(self.chunks))

    @property
    def gated(self) -> bool:
        return (
            self.request.use_gate
            and self.resources.gate.enabled
            and self.task.gated
            and len(self.chunks) > self.resources.gate.keep_at_least
        )

    @property
    def calibration(self) -> Calibration:
        return self.resources.calibration.for_task(self.task.name)

    def coverage(self, findings_dropped: int = 0) -> Coverage:
        read = (self.scores.keys() | self.mapped) - self.failed.keys()
        failed = tuple(self.failed[index] for index in sorted(self.failed))
        return Coverage(
            chunks=len(self.chunks),
            chunks_read=len(read),
            chunks_extracted=len(self.mapped),
            failed_chunks=failed,
            findings_dropped=findings_dropped,
        )

    async def read_all(self) -> None:
        """Read every chunk once; each is resolved on the frontier when this returns."""
        if not self.gated:
            await self._map(self.order, self._resolve)
            return
        early: set[int] = set()
        settings = self.resources.gate
        async with asyncio.TaskGroup() as group:
            calls = (self._gate_call(index) for index in self.order)
            self.resources.emit(StageStarted(stage=Stage.GATE, calls=len(self.order)))
            unscored: list[int] = []
            position = 0
            async for outcome in self.dispatcher.complete(calls):
                index = self.order[position]
                position += 1
                if isinstance(outcome, CallFailed):
                    unscored.append(index)
                    self._fail(index, Stage.GATE, outcome)
                    continue
                self.scores[index] = relevance(yes_score(outcome), self.lexical[index], settings)
                self.resources.emit(ChunkGated(chunk_index=index, score=self.scores[index]))
                if self.scores[index] >= settings.clear_score and len(early) < settings.keep_at_least:
                    early.add(index)
                    group.create_task(self._map([index], self._resolve))
        kept = [index for index in keep_chunks(self.scores, settings) if index not in early]
        # A chunk whose gate call failed may still hold the answer; one that a limit kept back stays unread.
        kept += [index for index in unscored if self.failed[index].error != "LimitReached"]
        for index in range(len(self.chunks)):
            if index not in early and index not in kept:
                self.frontier.resolve(index, None)
        await self._map(kept, self._resolve)

    async def read_some(self, indices: Sequence[int]) -> list[Finding]:
        """Map these chunks, without a gate; the supported findings in document order."""
        found: list[Finding] = []
        await self._map(indices, lambda _, finding: found.append(finding) if finding else None)
        return sorted(found, key=lambda finding: finding.chunk_indices)

    async def look_again(self) -> list[Finding]:
        """Map the likeliest chunks that the gate kept out; for when nothing else was found."""
        ranked = sorted(self.scores.keys() - self.mapped - self.failed.keys(), key=lambda i: -self.scores[i])
        return await self.read_some(ranked[: self.resources.gate.keep_at_least])

    def _resolve(self, index: int, finding: Finding | None) -> None:
        self.frontier.resolve(index, finding)

    def _gate_call(self, index: int) -> Call:
        call = gate_call(self.chunks[index], self.question_ids, self.task, self.resources.tokenizer)
        return self.resources.budget.prove(call)

    def _map_call(self, index: int) -> Call:
        call = map_call(self.chunks[index], self.question_ids, self.task, self.request, self.resources.tokenizer)
        return self.resources.budget.prove(call)

    async def _map(self, indices: Sequence[int], resolve: Callable[[int, Finding | None], None]) -> None:
        """Map chunks in the given order, check support, and say what became of each."""
        if not indices:
            return
        self.resources.emit(StageStarted(stage=Stage.MAP, calls=len(self.mapped) + len(indices)))
        calls: Iterable[Call] = (self._map_call(index) for index in indices)
        position = 0
        async with asyncio.TaskGroup() as group:
            async for outcome in self.dispatcher.complete(calls):
                group.create_task(self._finish(indices[position], outcome, resolve))
                position += 1

    async def _finish(
        self,
        index: int,
        outcome: Completion | CallFailed,
        resolve: Callable[[int, Finding | None], None],
    ) -> None:
        finding = await self._finding(index, outcome)
        if finding is not None and not finding.is_empty:
            finding = await self._judged(replace(finding, evidence=finding.evidence + self.known))
        kept = finding if finding is not None and self._is_kept(finding) else None
        if finding is not None and kept is None and not finding.is_empty:
            self.dropped.append(finding)
        self.resources.emit(ChunkMapped(chunk_index=index, finding=kept))
        if kept is not None:
            self.on_finding(kept)
        resolve(index, kept)

    async def _finding(self, index: int, outcome: Completion | CallFailed) -> Finding | None:
        """Parse, asking the model once more, warmer, where its output was no use."""
        for attempt in (1, 2):
            if isinstance(outcome, CallFailed):
                self._fail(index, Stage.MAP, outcome)
                return None
            try:
                finding = read_finding(
                    outcome,
                    self.chunks[index],
                    self.document,
                    self.request.question,
                    self.scores.get(index),
                )
            except MalformedOutput as error:
                outcome = CallFailed(error=type(error).__name__, message=str(error), attempts=attempt)
                if attempt == 1:
                    outcome = await self._ask_again(index)
                continue
            self.mapped.add(index)
            self.failed.pop(index, None)
            return finding
        assert isinstance(outcome, CallFailed)
        self._fail(index, Stage.MAP, outcome)
        return None

    async def _ask_again(self, index: int) -> Completion | CallFailed:
        async for outcome in self.dispatcher.complete([warmer(self._map_call(index))]):
            return outcome
        raise AssertionError("a dispatcher yields one outcome per call")

    async def _judged(self, finding: Finding) -> Finding:
        support = None
        if self.request.use_support_check and self.task.supported and any(e.span for e in finding.evidence):
            call = support_call(finding, self.question_ids, self.task, self.resources.tokenizer)
            async for outcome in self.dispatcher.complete([self.resources.budget.prove(call)]):
                support = outcome if isinstance(outcome, Completion) else None
        return judge_finding(finding, support, self.calibration)

    def _is_kept(self, finding: Finding) -> bool:
        if self.task.free_text:
            return not finding.is_empty
        return not finding.is_empty and finding.probability >= self.calibration.keep_probability

    def _fail(self, index: int, stage: Stage, failed: CallFailed) -> None:
        self.failed[index] = failed_chunk(self.chunks[index], failed, stage)
