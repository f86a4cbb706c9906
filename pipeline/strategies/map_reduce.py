"""LLM×MapReduce (arXiv 2410.09342), pipelined: the file to read first.

    document ─split─▶ chunks ─gate─▶ promising chunks ─map─▶ findings ─support─▶ supported findings
                                  ─collapse─▶ findings that fit ─reduce─▶ answer with evidence

Departs from the paper in: a relevance gate before the map, evidence by pointer, a support check, confidence
calibrated from log-probabilities, and no barrier between the stages (docs/architecture.md says why, docs/experiments.md
what it is worth).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pipeline.answer import Answer
from pipeline.build_answer import build_answer
from pipeline.choose_chunks import choose_chunks
from pipeline.collapse_findings import Collapse, collapse_findings
from pipeline.document import Document
from pipeline.errors import QuestionTooLong
from pipeline.events import Provisional
from pipeline.finding import Finding
from pipeline.follow_clue import follow_clue
from pipeline.map_chunks import map_call
from pipeline.meter import Meter
from pipeline.rank_chunks import best_first, score_words
from pipeline.read_chunks import Reading
from pipeline.reduce_findings import Conclusion, conclude_from_one, reduce_findings, same_answer
from pipeline.render_findings import RENDERED_TOKENS
from pipeline.run import Plan, Request, Resources
from pipeline.split_document import NO_CHUNK, Chunk
from pipeline.tasks import Task, task_for

PROVISIONAL_PROBABILITY = 0.5
"""A finding is shown as a first answer when it is more likely right than not."""
LONGEST_QUESTION_SHARE = 0.25
"""Of the context. A longer question leaves too little room for findings to be weighed against each other."""


class MapReduce:
    """Gate, map, check, collapse, reduce."""

    name = "mapreduce"

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        task = task_for(request.task, request.question)
        question_ids = encode_question(request, resources)
        chunks = _split(document, request, resources, task, question_ids)
        tokens = sum(len(chunk.numbered_token_ids) for chunk in chunks)
        header = len(task.header.encode(resources.tokenizer, {}))
        read = tokens + len(chunks) * (header + len(question_ids) + 200)
        gated = request.use_gate and resources.gate.enabled and task.gated and len(chunks) > 1
        collapses = 2 * len(chunks) * RENDERED_TOKENS // resources.budget.context_tokens
        supports = len(chunks) if task.supported and request.use_support_check else 0
        calls = len(chunks) * (2 if gated else 1) + supports + collapses + 1
        return Plan(
            strategy=self.name,
            reason="the document fits one chunk" if len(chunks) == 1 else "the document is longer than one chunk",
            document_tokens=sum(len(s.token_ids) for chunk in chunks for s in chunk.sentences),
            chunks=len(chunks),
            calls=calls,
            prompt_tokens=read * (2 if gated else 1) + (supports * 300) + (collapses + 1) * 3000,
            output_tokens=len(chunks) * task.map_output_tokens + (collapses + 1) * task.reduce_output_tokens,
            depth=3 + gated + (1 if collapses else 0),
            graph=_graph(len(chunks), gated=gated, supported=bool(supports)),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        # 1. Prepare: everything that needs no model.
        task = task_for(request.task, request.question)
        meter = Meter(resources.dispatcher, request.limits, resources.emit)
        question_ids = encode_question(request, resources)
        chunks = _split(document, request, resources, task, question_ids)
        lexical = score_words(document, chunks, request.question)
        order = best_first(lexical) if request.best_first else range(len(chunks))
        collapse = Collapse(
            question_ids=question_ids, task=task, chunks=len(chunks), dispatcher=meter, resources=resources
        )
        collapse.reduce_room_tokens()  # a context too small for the last stage is found before the first call
        first_answers = _FirstAnswers()
        reading = Reading(
            document=document,
            chunks=chunks,
            order=order,
            lexical=lexical,
            question_ids=question_ids,
            task=task,
            request=request,
            resources=resources,
            dispatcher=meter,
            on_finding=lambda finding: _tell_if_better(finding, first_answers, reading, meter),
        )
        # 2. Read and collapse, side by side.
        async with asyncio.TaskGroup() as group:
            group.create_task(reading.read_all())
            collapsing = group.create_task(collapse_findings(reading.frontier.in_order(), collapse))
        findings = collapsing.result()
        # 3. Nothing found: look again at what the gate kept out, then where the best clue leads.
        if not findings and reading.gated:
            findings = await reading.look_again()
        if not findings and task.decisive:
            findings = await follow_clue(reading)
        # 4. Reduce.
        conclusion = await reduce_findings(findings, collapse, request.letters)
        return _answer(conclusion, reading, meter, collapse)


def encode_question(request: Request, resources: Resources) -> Sequence[int]:
    """The question, with its options under letters; outside text like the document."""
    options = [f"{letter}. {choice}" for letter, choice in zip(request.letters, request.choices, strict=True)]
    ids = resources.tokenizer.encode_content("\n".join([request.question, *options]))
    longest = int(resources.budget.context_tokens * LONGEST_QUESTION_SHARE)
    if len(ids) > longest:
        raise QuestionTooLong(
            f"The question has {len(ids)} tokens; at most {longest} leave room for the document "
            f"in a context of {resources.budget.context_tokens}."
        )
    return ids


def _split(
    document: Document, request: Request, resources: Resources, task: Task, question_ids: Sequence[int]
) -> Sequence[Chunk]:
    tokenizer = resources.tokenizer
    fixed = map_call(NO_CHUNK, question_ids, task, request, tokenizer).prompt.token_ids
    room = resources.budget.room_tokens(fixed_tokens=len(fixed), output_tokens=task.map_output_tokens)
    return choose_chunks(document, request, resources, room)


class _FirstAnswers:
    """The best finding shown so far."""

    best: Finding | None = None


def _tell_if_better(finding: Finding, shown: _FirstAnswers, reading: Reading, meter: Meter) -> None:
    best = shown.best
    if reading.task.free_text or finding.probability < PROVISIONAL_PROBABILITY:
        return
    if best is not None and finding.probability <= best.probability:
        return
    shown.best = finding
    if best is None:
        reason = "the first supported finding"
    elif same_answer(best.answer, finding.answer):
        reason = "better supported"
    else:
        reason = "another part supports a different answer better"
    answer = _answer(conclude_from_one(finding), reading, meter, provisional=True)
    reading.resources.emit(Provisional(answer=answer, reason=reason))


def _graph(chunks: int, *, gated: bool, supported: bool) -> str:
    """The stages as Mermaid text."""
    steps = ["document", f"split[{chunks} chunks]"]
    steps += [f"gate[gate ×{chunks}]"] if gated else []
    steps += ["map[map the kept chunks]" if gated else f"map[map ×{chunks}]"]
    steps += ["support[support check]"] if supported else []
    steps += ["collapse[collapse while too long]", "reduce", "answer[answer with evidence]"]
    return "flowchart LR\n    " + " --> ".join(steps)


def _answer(
    conclusion: Conclusion,
    reading: Reading,
    meter: Meter,
    collapse: Collapse | None = None,
    *,
    provisional: bool = False,
) -> Answer:
    warnings: list[str] = []
    if collapse and collapse.failed:
        warnings.append(f"{len(collapse.failed)} collapse calls failed; their best finding stood in for the rest.")
    coverage = reading.coverage(collapse.dropped if collapse else 0)
    return build_answer(conclusion, coverage, meter, warnings=warnings, provisional=provisional)
