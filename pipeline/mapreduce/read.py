"""Reading a document for one question: `read_chunk` follows one chunk from the gate to its finding.

All chunks are read side by side, the promising ones first. A chunk with a clear score is mapped at once, a doubtful
one when the scores of all are in. Each ends as read, unread or failed, exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.findings.confidence import judge_finding
from pipeline.findings.finding import Evidence, Finding
from pipeline.llm.complete import at_once, complete_parsed, yes_score
from pipeline.llm.model import LIMIT_REACHED, CallFailed, Stage
from pipeline.llm.prompt import PromptTemplate
from pipeline.mapreduce.gate import GatePass, gate_call, relevance
from pipeline.mapreduce.map import map_call, read_finding, support_call
from pipeline.run.events import ChunkGated, StageStarted
from pipeline.run.run import Run

MAX_ADDED_TOKENS = 192
"""Of what a second round puts beside the question; every chunk leaves room for it."""


def ask_more(run: Run, template: PromptTemplate, added: str) -> Run:
    """The same run, its question asked with something beside it; what is read goes into the one account of both."""
    ids = run.tokenizer.encode_content(added)[:MAX_ADDED_TOKENS]
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
    scores: dict[int, float] = field(default_factory=dict)
    """Relevance of each gated chunk, in nats."""
    map_calls: int = 0
    """Known to be needed so far, repairs aside."""

    @property
    def gated(self) -> bool:
        """Also where the gate would keep every chunk: a finding is judged by its chunk's score."""
        return self.run.request.use_gate and self.run.resources.gate.enabled and self.run.task.gated

    def read_all(self, group: asyncio.TaskGroup) -> AsyncIterator[Finding]:
        """Read every chunk once, each in a task of `group`.

        The findings come in document order, each as soon as all before it are known.
        """
        if self.gated:
            self.run.resources.emit(StageStarted(stage=Stage.GATE, calls=len(self.order)))
        else:
            self._expect_maps(len(self.order))
        gate = GatePass(self.order, self.run.resources.gate) if self.gated else None
        reading = {index: group.create_task(self.read_chunk(index, gate)) for index in self.order}

        async def in_document_order() -> AsyncIterator[Finding]:
            for index in range(len(self.run.chunks)):
                # Shielded: a run that is cancelled ends all its chunks together, and not first the one awaited here,
                # whose slot another would take.
                finding = await asyncio.shield(reading.pop(index))
                if finding is not None:
                    yield finding

        return in_document_order()

    async def read_some(self, indices: Sequence[int]) -> list[Finding]:
        """Map these chunks, without a gate; the supported findings in document order."""
        self._expect_maps(len(indices))
        findings = await at_once(self.read_chunk(index) for index in indices)
        return sorted((one for one in findings if one is not None), key=lambda finding: finding.chunk_indices)

    async def look_again(self) -> list[Finding]:
        """Map the likeliest chunks that the gate kept out; for when nothing else was found."""
        account = self.run.account
        ranked = sorted(self.scores.keys() - account.read - account.failed.keys(), key=lambda i: -self.scores[i])
        return await self.read_some(ranked[: self.run.resources.gate.keep_at_least])

    async def read_chunk(self, index: int, gate: GatePass | None = None) -> Finding | None:
        """What a chunk says about the question, if that is supported; every call that is made about it, in turn."""
        run, chunk, account = self.run, self.run.chunks[index], self.run.account
        check_fits, meter = run.resources.budget.check_fits, run.meter

        # 1. Gate: one token says whether it is worth reading. A failed call leaves that open; a limit closes it.
        if gate is not None:
            outcome = await meter.complete(check_fits(gate_call(chunk, run.question_ids, run.task, run.tokenizer)))
            if isinstance(outcome, CallFailed):
                account.add_failed(index, outcome, Stage.GATE)
                kept = gate.add_unscored(index, may_pass=outcome.error != LIMIT_REACHED)
            else:
                score = relevance(yes_score(outcome), self.lexical[index], run.resources.gate)
                self.scores[index] = score
                account.gated.add(index)
                run.resources.emit(ChunkGated(chunk_index=index, score=score))
                kept = gate.add(index, score)
            if not await kept:
                return None
            self._expect_maps(gate.passed - self.map_calls)

        # 2. Map: what it says, and which sentences say so.
        call = check_fits(map_call(chunk, run.question_ids, run.task, run.request, run.tokenizer))
        gate_score, question = self.scores.get(index), run.request.question
        finding = await complete_parsed(
            call, lambda completion: read_finding(completion, chunk, run.document, question, gate_score), meter
        )
        if isinstance(finding, CallFailed):
            account.add_failed(index, finding)
            return None
        if finding.is_empty:
            account.add_read(index, None)
            return None
        finding = replace(finding, evidence=finding.evidence + self.known)

        # 3. Check: do those sentences alone support it? One token; then its probability.
        support = None
        if run.request.use_support_check and run.task.supported and finding.located_quotes:
            checked = await meter.complete(check_fits(support_call(finding, run.question_ids, run.task, run.tokenizer)))
            if isinstance(checked, CallFailed):
                account.unchecked.update(finding.chunk_indices)
            else:
                support = checked
        finding = judge_finding(finding, support, run.calibration)

        # 4. Keep what is likely enough.
        if not run.task.free_text and finding.probability < run.calibration.keep_probability:
            account.add_read(index, None)
            return None
        account.add_read(index, finding)
        self.on_finding(finding)
        return finding

    def _expect_maps(self, more: int) -> None:
        if more:
            self.map_calls += more
            self.run.resources.emit(StageStarted(stage=Stage.MAP, calls=self.map_calls))
