"""One chunk after another, each completing or correcting the answer so far.

After LangChain's refine chain; departs in a field that says the answer stays as it is, so that "no change needed" is
never an answer and a chunk that adds nothing cannot lose what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import NO_CHUNK, Chunk
from pipeline.documents.document import Document
from pipeline.findings.answer import NOTHING, Answer, Conclusion, conclude_from_one
from pipeline.findings.evidence import MAX_EVIDENCE, spread_evidence
from pipeline.findings.finding import Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.schema import CONFIDENCE, FLAG, answer_schema, number_list, object_schema, parse_fields
from pipeline.mapreduce.map import MAX_QUOTES, evidence_of
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.tasks import Task
from pipeline.text import same_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """The state between two chunks."""

    answer: Finding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one chunk does to the answer so far."""

    unchanged: bool
    finding: Finding
    """The new answer, which is used only if it is not `unchanged`, not empty and not cut off."""


class Refine:
    """A fold over the chunks with the answer as its state."""

    name = "refine"
    steps = ("refine", "answer")
    options = CHUNK_OPTIONS

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = _begin(document, request, resources)
        n, output = len(run.chunks), run.task.reduce_output_tokens
        calls = [_call(chunk, None, run) for chunk in run.chunks[:1]]
        calls += [_call(chunk, NO_ANSWER, run) for chunk in run.chunks[1:]]
        return Plan(
            strategy=self.name,
            reason="every chunk in its turn",
            document_tokens=run.document_tokens(),
            chunks=n,
            calls=n,
            prompt_tokens=sum(len(call.prompt.token_ids) for call in calls) + max(0, n - 1) * output,
            output_tokens=n * output,
            depth=n,
            graph=f"flowchart LR\n    document --> split[{n} chunks] --> refine[refine ×{n}, in order] --> answer\n"
            "    refine -- answer so far --> refine",
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        run = _begin(document, request, resources)
        resources.emit(StageStarted(stage=Stage.MAP, calls=len(run.chunks)))
        known: Finding | None = None
        for chunk in run.chunks:
            known = run.step("refine", SoFar(answer=known)).answer
            outcome = await _read_next(chunk, known, run)
            before = known
            if isinstance(outcome, CallFailed):
                run.account.add_failed(chunk.index, outcome)
                continue
            known = apply_update(known, outcome, run.task)
            changed = known is not before
            run.account.add_read(chunk.index, known if changed else None)
            if changed and not run.task.free_text:
                reason = f"part {chunk.index + 1} of {len(run.chunks)} {'gives' if before is None else 'changes'} it"
                run.account.show_always(_conclude(known), reason)
        known = run.step("answer", SoFar(answer=known)).answer
        return run.account.answer(_conclude(known))


NO_ANSWER = Finding(chunk_indices=(), evidence=(), rationale="", answer="", stated_confidence=1)
"""Stands for an answer so far whose tokens are counted apart."""


def apply_update(known: Finding | None, update: Update, task: Task) -> Finding | None:
    """The answer after one more chunk.

    Evidence of the old answer stays where the new one still holds it; what was cut off never replaces what is whole.
    """
    new = update.finding
    if update.unchanged or new.is_empty or (known is not None and new.truncated):
        return known
    if known is None or not (task.free_text or not task.decisive or same_answer(known.answer, new.answer)):
        return new
    places = {e.span: e for e in (*known.evidence, *new.evidence) if e.span is not None}
    return replace(
        new,
        chunk_indices=(*known.chunk_indices, *new.chunk_indices),
        evidence=tuple(places.values()),
        probability=max(known.probability, new.probability),
    )


def _begin(document: Document, request: Request, resources: Resources) -> Run:
    run = begin_run(document, request, resources)
    output = run.task.reduce_output_tokens
    fixed = len(_call(NO_CHUNK, NO_ANSWER, run).prompt.token_ids)
    # Room for the answer so far, and for the new one.
    run.split(resources.budget.room_tokens(fixed_tokens=fixed + output, output_tokens=output))
    return run


async def _read_next(chunk: Chunk, known: Finding | None, run: Run) -> Update | CallFailed:
    call = run.resources.budget.check_fits(_call(chunk, known, run))
    return await complete_parsed(call, lambda completion: _read(completion, chunk, run), run.meter)


def _call(chunk: Chunk, known: Finding | None, run: Run) -> Call:
    """The answer so far stands after the chunk, so that it costs no cached prefix."""
    tokenizer, task = run.resources.tokenizer, run.task
    values: dict[str, Sequence[int]] = {"question": run.question_ids}
    if known is not None:
        values["answer"] = tokenizer.encode_content(known.answer)[: task.reduce_output_tokens]
    own = run.prompt("refine", "first" if known is None else "next").encode(tokenizer, values)
    fields = {"sentences": number_list(len(chunk.sentences), MAX_QUOTES)}
    if known is not None:
        fields["unchanged"] = FLAG
    fields["answer"] = answer_schema(run.request.letters)
    if "confidence" in task.map_fields:
        fields["confidence"] = CONFIDENCE
    sampling = Sampling(max_output_tokens=task.reduce_output_tokens, json_schema=object_schema(**fields))
    return chunk_call(chunk, own, sampling, tokenizer, header=task.header)


def _read(completion: Completion, chunk: Chunk, run: Run) -> Update:
    parsed = parse_fields(completion)
    finding = Finding(
        chunk_indices=(chunk.index,),
        evidence=evidence_of(parsed, chunk, run.document, run.request.question),
        rationale="",
        answer=parsed.text("answer"),
        stated_confidence=parsed.confidence(),
        truncated=parsed.truncated,
    )
    return Update(unchanged=parsed.flag("unchanged"), finding=run.judge(finding))


def _conclude(known: Finding | None) -> Conclusion:
    if known is None:
        return NOTHING
    return replace(conclude_from_one(known), evidence=spread_evidence(known.evidence, MAX_EVIDENCE))
