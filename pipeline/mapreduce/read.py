"""Reading a document for one question: gate, map and support check of its chunks, the promising ones first.

The gate passes over all chunks in best-first order. What scores clearly is mapped at once, while the pass goes on;
the doubtful rest when all scores are in. Every chunk ends as read, unread or failed, exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import tee

from pipeline.findings.confidence import judge_finding
from pipeline.findings.finding import Evidence, Finding
from pipeline.llm.complete import complete, read_or_ask_again, yes_score
from pipeline.llm.model import Call, CallFailed, Completion, Outcome, Stage
from pipeline.llm.prompt import PromptTemplate
from pipeline.mapreduce.frontier import Frontier
from pipeline.mapreduce.gate import gate_call, keep_chunks, relevance
from pipeline.mapreduce.map import map_call, read_finding, support_call
from pipeline.run.coverage import LIMIT_REACHED
from pipeline.run.events import ChunkGated, StageStarted
from pipeline.run.run import Run

MOST_ADDED_TOKENS = 192
"""Of what a second round puts beside the question; every chunk leaves room for it."""


def ask_more(run: Run, template: PromptTemplate, added: str) -> Run:
    """The same run, its question asked with something beside it; what is read goes into the one account of both."""
    ids = run.tokenizer.encode_content(added)[:MOST_ADDED_TOKENS]
    question_ids = template.encode(run.tokenizer, {"question": run.question_ids, "added": ids})
    return replace(
        run, question_ids=question_ids, request=replace(run.request, question=f"{run.request.question} {added}")
    )


@dataclass(slots=True, kw_only=True)
class Reading:
    """What one run knows of its chunks, filled in as outcomes arrive."""

    run: Run
    order: Sequence[int]
    """Chunk indices in the order of sending."""
    lexical: Sequence[float]
    """Of each chunk, how close its words are to the question's, 0 to 1."""
    on_finding: Callable[[Finding], None]
    """Told of each supported finding as it arrives."""
    known: tuple[Evidence, ...] = ()
    """What another part was seen to say; stands beside the evidence of every finding."""
    frontier: Frontier = field(init=False)
    scores: dict[int, float] = field(default_factory=dict)
    """Relevance of each gated chunk, in nats."""
    map_calls: int = 0
    """Sent so far, repairs aside."""

    def __post_init__(self) -> None:
        self.frontier = Frontier(len(self.run.chunks))

    @property
    def gated(self) -> bool:
        """Also where the gate would keep every chunk: a finding is judged by its chunk's score."""
        return self.run.request.use_gate and self.run.resources.gate.enabled and self.run.task.gated

    async def read_all(self) -> None:
        """Read every chunk once; each is resolved on the frontier when this returns."""
        if not self.gated:
            await self._map(self.order, self._resolve)
            return
        early: set[int] = set()
        account, settings = self.run.account, self.run.resources.gate
        async with asyncio.TaskGroup() as group:
            calls = (self._gate_call(index) for index in self.order)
            self.run.resources.emit(StageStarted(stage=Stage.GATE, calls=len(self.order)))
            unscored: list[int] = []
            position = 0
            async for outcome in self.run.meter.complete(calls):
                index = self.order[position]
                position += 1
                if isinstance(outcome, CallFailed):
                    unscored.append(index)
                    account.add_failed(index, outcome, Stage.GATE)
                    continue
                self.scores[index] = relevance(yes_score(outcome), self.lexical[index], settings)
                account.gated.add(index)
                self.run.resources.emit(ChunkGated(chunk_index=index, score=self.scores[index]))
                if self.scores[index] >= settings.clear_score and len(early) < settings.keep_at_least:
                    early.add(index)
                    group.create_task(self._map([index], self._resolve))
        kept = [index for index in keep_chunks(self.scores, settings) if index not in early]
        # A chunk whose gate call failed may still hold the answer; one that a limit kept back stays unread.
        kept += [index for index in unscored if account.failed[index].error != LIMIT_REACHED]
        for index in range(len(self.run.chunks)):
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
        account = self.run.account
        ranked = sorted(self.scores.keys() - account.read - account.failed.keys(), key=lambda i: -self.scores[i])
        return await self.read_some(ranked[: self.run.resources.gate.keep_at_least])

    def _resolve(self, index: int, finding: Finding | None) -> None:
        self.frontier.resolve(index, finding)

    def _gate_call(self, index: int) -> Call:
        run = self.run
        return run.resources.budget.prove(gate_call(run.chunks[index], run.question_ids, run.task, run.tokenizer))

    def _map_call(self, index: int) -> Call:
        run = self.run
        call = map_call(run.chunks[index], run.question_ids, run.task, run.request, run.tokenizer)
        return run.resources.budget.prove(call)

    async def _map(self, indices: Sequence[int], resolve: Callable[[int, Finding | None], None]) -> None:
        """Map chunks in the given order, check support, and say what became of each."""
        if not indices:
            return
        self.map_calls += len(indices)
        self.run.resources.emit(StageStarted(stage=Stage.MAP, calls=self.map_calls))
        sending, waiting = tee(self._map_call(index) for index in indices)
        position = 0
        async with asyncio.TaskGroup() as group:
            async for outcome in self.run.meter.complete(sending):
                group.create_task(self._finish(indices[position], next(waiting), outcome, resolve))
                position += 1

    async def _finish(
        self,
        index: int,
        call: Call,
        outcome: Outcome,
        resolve: Callable[[int, Finding | None], None],
    ) -> None:
        run = self.run
        finding = await read_or_ask_again(call, outcome, partial(self._read, index), run.meter)
        kept: Finding | None = None
        if isinstance(finding, CallFailed):
            run.account.add_failed(index, finding)
        else:
            if not finding.is_empty:
                finding = await self._judged(replace(finding, evidence=finding.evidence + self.known))
                kept = finding if self._is_kept(finding) else None
            run.account.add_read(index, kept)
        if kept is not None:
            self.on_finding(kept)
        resolve(index, kept)

    def _read(self, index: int, completion: Completion) -> Finding:
        run = self.run
        return read_finding(completion, run.chunks[index], run.document, run.request.question, self.scores.get(index))

    async def _judged(self, finding: Finding) -> Finding:
        run, support = self.run, None
        if run.request.use_support_check and run.task.supported and finding.located_quotes:
            call = support_call(finding, run.question_ids, run.task, run.tokenizer)
            outcome = await complete(run.resources.budget.prove(call), run.meter)
            if isinstance(outcome, CallFailed):
                run.account.unchecked.update(finding.chunk_indices)
            else:
                support = outcome
        return judge_finding(finding, support, run.calibration)

    def _is_kept(self, finding: Finding) -> bool:
        return self.run.task.free_text or finding.probability >= self.run.calibration.keep_probability
