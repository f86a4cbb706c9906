"""LC-Boost (arXiv 2405.15318): a short-context model decides for itself which parts of a document to look at.

    task reasoning ─▶ look at a chunk ─▶ retrieve, move: another chunk
                                      ─▶ append, update: the notes, then another chunk
                                      ─▶ answer ─▶ done;  aggregate, or nothing left ─▶ answer from the notes

An adaptation: the authors published no code and the prompts are ours; docs/strategies.md says what follows the paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.chunks.rank import best_first, score_words
from pipeline.documents.document import Document
from pipeline.findings.answer import NOTHING, Answer, Conclusion, conclude_from_one
from pipeline.findings.finding import ChunkIndex, Evidence, Finding
from pipeline.llm.model import CallFailed, Stage
from pipeline.llm.prompt import PromptTemplate
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.lc_boost.actions import (
    EVERYTHING,
    Action,
    Step,
    largest_chunk_tokens,
    reason,
    reason_call,
    step_call,
    take_step,
)
from pipeline.strategies.shared.notes import Notes, NotesBudget, condense_notes, cut_text

CHUNK_TOKENS = 3000
NOTES_TOKENS = 1500
"""At most, and never more than three sixteenths of the context."""
APPENDED_TOKENS = 320
"""Of one append; a longer one is cut."""


class LCBoost:
    """Step by step through the chunks, each step chosen by the model."""

    name = "lc_boost"
    steps = ("look", "answer")
    options = CHUNK_OPTIONS

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        keeper = _begin(document, request, resources)
        run, n = keeper.run, len(keeper.run.chunks)
        steps = _max_steps(n)
        condensing = steps // 2  # after condensing to a half, no single append fills the notes again
        largest = max(
            (len(step_call(keeper, i, Notes(), tuple(Action), []).prompt.token_ids) for i in range(n)), default=0
        )
        step_output = keeper.max_tokens + 256
        prompt_tokens = (
            steps * (largest + keeper.max_tokens + 128)
            + (condensing + 1) * (2 * keeper.max_tokens + len(run.question_ids) + 1024)
            + len(reason_call(run).prompt.token_ids)
        )
        return Plan(
            strategy=self.name,
            reason=f"between 2 calls and a walk of {steps} steps through {n} chunks, as the model decides",
            document_tokens=run.document_tokens(),
            chunks=n,
            calls=1 + steps + condensing + 1 if n else 0,
            prompt_tokens=prompt_tokens if n else 0,
            output_tokens=256 + steps * step_output + condensing * keeper.max_tokens + run.task.reduce_output_tokens,
            depth=1 + steps + condensing + 1 if n else 0,
            graph=_graph(n),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        keeper = _begin(document, request, resources)
        run = keeper.run
        if not run.chunks:
            return run.account.answer(NOTHING)
        approach = await reason(run)
        order = list(range(len(run.chunks)))
        if approach.everything:
            resources.emit(StageStarted(stage=Stage.MAP, calls=len(order)))
        else:
            words = " ".join([request.question, *approach.queries])
            order = best_first(score_words(document, run.chunks, words))
        walker = _Walker(keeper=keeper, walk=Walk(everything=approach.everything, cursor=order[0], ranking=order))
        conclusion = await walker.to_the_end()
        if conclusion is None:
            notes = run.step("answer", walker.walk).notes
            conclusion = await keeper.answer(notes, _answer_prompt(run)) if notes.text else NOTHING
        if run.account.unread and not run.meter.stopped_by:
            run.account.warnings.append(f"Chunks {_ranges(run.account.unread)} were skipped by the model.")
        return run.account.answer(conclusion)


def _max_steps(chunks: int) -> int:
    return 2 * chunks + 8


def _begin(document: Document, request: Request, resources: Resources) -> NotesBudget:
    """Everything that needs no model; a context too small for any of the prompts is found here."""
    run = begin_run(document, request, resources)
    keeper = NotesBudget(run=run, max_tokens=min(NOTES_TOKENS, resources.budget.context_tokens * 3 // 16))
    run.split(largest_chunk_tokens(keeper), usual_tokens=CHUNK_TOKENS)
    keeper.check_answer_fits(_answer_prompt(run))
    return keeper


def _answer_prompt(run: Run) -> PromptTemplate:
    return run.prompt("lc_boost", "answer_summary" if run.task.free_text else "answer")


@dataclass(slots=True, kw_only=True)
class Walk:
    """Where the model stands, what it has noted, and what it did where: the state between two looks."""

    everything: bool
    notes: Notes = field(default_factory=Notes)
    cursor: ChunkIndex | None
    """The chunk to look at next; None when all were seen."""
    ranking: list[ChunkIndex]
    """The order in which chunks are come to; a retrieval changes it."""
    visited: set[ChunkIndex] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    """Action, chunk and a digest of the notes of each look: the same again would lead in a circle."""

    def unread(self) -> list[int]:
        return [index for index in self.ranking if index not in self.visited]

    def next(self) -> int | None:
        return next(iter(self.unread()), None)


@dataclass(slots=True, kw_only=True)
class _Walker:
    """Leads the model from look to look."""

    keeper: NotesBudget
    walk: Walk

    async def to_the_end(self) -> Conclusion | None:
        """Return the answer a look gave; None if it must be made from the notes."""
        run = self.keeper.run
        for look in range(1, _max_steps(len(run.chunks)) + 1):
            if self.walk.cursor is None or run.meter.stopped_by:
                return None
            walk = self.walk = run.step("look", self.walk)
            cursor = walk.cursor
            if cursor is None:  # by hand
                return None
            if not walk.everything:  # how many looks there will be is known only when the last is over
                run.resources.emit(StageStarted(stage=Stage.MAP, calls=look))
            walk.visited.add(cursor)
            step = await take_step(self.keeper, cursor, walk.notes, self._actions(), walk.unread())
            if isinstance(step, CallFailed):
                run.account.add_failed(cursor, step)
                walk.cursor = walk.next()
                continue
            run.account.add_read(cursor, _finding(cursor, step))
            if step.action is Action.ANSWER:
                return self._answer(cursor, step)
            following = await self._follow(cursor, step)
            if step.action is Action.AGGREGATE:
                return None
            walk.cursor = following
        run.account.warnings.append("The walk through the document ended at its last allowed step.")
        return None

    def _actions(self) -> Sequence[Action]:
        if self.walk.everything:
            return EVERYTHING
        return [action for action in Action if action is not Action.AGGREGATE or self.walk.notes.text]

    async def _follow(self, cursor: int, step: Step) -> int | None:
        """Do what the step says; return the chunk to look at next, None when all were seen.

        What was noted is kept with any action: a small model notes the very fact and then chooses to move on.
        """
        walk = self.walk
        key = f"{step.action} {cursor} {hashlib.sha256(walk.notes.text.encode()).hexdigest()[:12]}"
        repeated = key in walk.done
        walk.done.add(key)
        if step.notes and not repeated:
            await self._write(cursor, step)
        if step.action is Action.RETRIEVE and not repeated:
            walk.ranking = best_first(score_words(self.keeper.run.document, self.keeper.run.chunks, step.query))
        if step.action is Action.MOVE and not repeated and walk.unread():
            return step.target if step.target is not None else walk.next()
        return walk.next()

    async def _write(self, cursor: int, step: Step) -> None:
        """Notes stay within their room: what is appended is cut, notes that overflow are condensed to a half."""
        tokenizer, most = self.keeper.run.tokenizer, self.keeper.max_tokens
        if step.action is Action.UPDATE:
            text = cut_text(step.notes, most, tokenizer)
        else:
            added = cut_text(step.notes, APPENDED_TOKENS, tokenizer)
            text = f"{self.walk.notes.text}\n(part {cursor + 1}) {added}".strip()
            if tokenizer.count(text) > most:
                text = await condense_notes(text, most // 2, self.keeper.run)
        self.walk.notes = self.walk.notes.rewritten(text, cursor, step.evidence)

    def _answer(self, cursor: int, step: Step) -> Conclusion:
        """An answer given at a chunk rests on its sentences, and on those of the notes."""
        notes = self.walk.notes
        noted = [evidence for index in sorted(notes.evidence) for evidence in notes.evidence[index]]
        finding = _finding(cursor, step, noted)
        assert finding is not None
        return conclude_from_one(self.keeper.run.judge(finding))


def _finding(cursor: int, step: Step, noted: Sequence[Evidence] = ()) -> Finding | None:
    """What a step took from its chunk; None if it went on without."""
    text = step.answer or step.notes
    if not text:
        return None
    return Finding(
        chunk_indices=tuple(sorted({cursor, *(evidence.chunk_index for evidence in noted)})),
        evidence=(*step.evidence, *noted),
        rationale=step.reason,
        answer=text,
        stated_confidence=step.confidence,
    )


def _ranges(indices: Sequence[int]) -> str:
    """Ascending indices as "0-3, 7"."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1][-1:] = [runs[-1][-1], index] if len(runs[-1]) == 1 else [index]
        else:
            runs.append([index])
    return ", ".join("-".join(str(end) for end in run) for run in runs)


def _graph(chunks: int) -> str:
    """The walk as Mermaid text."""
    return "\n".join(
        (
            "flowchart LR",
            f"    document --> split[{chunks} chunks] --> reason[task reasoning] --> look[look at a chunk]",
            "    look -- retrieve, move --> look",
            "    look -- append, update --> notes --> look",
            "    look -- answer --> answer[answer with evidence]",
            "    look -- aggregate, all seen --> last[answer from the notes] --> answer",
        )
    )
