"""LLM×MapReduce (arXiv 2410.09342), pipelined: the file to read first.

    document ─split─▶ chunks ─gate─▶ promising chunks ─map─▶ findings ─support─▶ supported findings
                                  ─collapse─▶ findings that fit ─reduce─▶ answer with evidence

Departs from the paper in: a relevance gate before the map, evidence by pointer, a support check, confidence
calibrated from log-probabilities, and no barrier between the stages (docs/decisions/ says why, docs/experiments.md
what it is worth).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pipeline.chunks.rank import best_first, score_words
from pipeline.chunks.split import NO_CHUNK
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer, conclude_from_one
from pipeline.findings.finding import Finding, Findings
from pipeline.findings.render import RENDERED_TOKENS
from pipeline.mapreduce.collapse import Collapse, collapse_findings, stream
from pipeline.mapreduce.conflicts import CALLS_PER_RIVAL, MAX_RIVALS
from pipeline.mapreduce.map import map_call
from pipeline.mapreduce.read import MAX_ADDED_TOKENS, Reading
from pipeline.mapreduce.reduce import reduce_findings
from pipeline.mapreduce.second_hop import follow_clue
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources


class MapReduce:
    """Gate, map, check, collapse, reduce."""

    name = "mapreduce"
    steps = ("collapse", "reduce")
    options = (
        *CHUNK_OPTIONS,
        "use_gate",
        "use_support_check",
        "settle_conflicts",
        "copy_quotes",
        "best_first",
        "use_rationale",
    )

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = _begin(document, request, resources)
        task, chunks, question_ids = run.task, run.chunks, run.question_ids
        tokens = sum(len(chunk.numbered_token_ids) for chunk in chunks)
        header = len(task.header.encode(resources.tokenizer, {}))
        read = tokens + len(chunks) * (header + len(question_ids) + 200)
        gated = request.use_gate and resources.gate.enabled and task.gated
        collapses = 2 * len(chunks) * RENDERED_TOKENS // resources.budget.context_tokens
        again = min(len(chunks) - 1, resources.gate.keep_at_least) if task.decisive else 0  # along a clue
        supports = len(chunks) + again if task.supported and request.use_support_check else 0
        settling = CALLS_PER_RIVAL * MAX_RIVALS if task.decisive and request.settle_conflicts else 0
        calls = len(chunks) * (2 if gated else 1) + again + supports + collapses + settling + 1
        return Plan(
            strategy=self.name,
            reason="the document fits one chunk" if len(chunks) == 1 else "the document is longer than one chunk",
            document_tokens=run.document_tokens(),
            chunks=len(chunks),
            calls=calls,
            prompt_tokens=read * (2 if gated else 1) + (supports + settling) * 300 + (collapses + 1) * 3000,
            output_tokens=len(chunks) * task.map_output_tokens + (collapses + 1) * task.reduce_output_tokens,
            depth=3 + gated + (2 if again else 0) + (1 if collapses else 0) + (MAX_RIVALS if settling else 0),
            graph=_graph(len(chunks), gated=gated, supported=bool(supports)),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        # 1. Prepare: everything that needs no model.
        run = _begin(document, request, resources)
        lexical = await asyncio.to_thread(score_words, document, run.chunks, request.question)
        collapse = Collapse(
            question_ids=run.question_ids,
            task=run.task,
            chunks=len(run.chunks),
            dispatcher=run.meter,
            resources=resources,
            step=lambda findings: run.steps.take_streamed("collapse", findings),
        )
        collapse.reduce_room_tokens()  # a context too small for the last stage is found before the first call
        reading = Reading(
            run=run,
            order=best_first(lexical) if request.best_first else range(len(run.chunks)),
            lexical=lexical,
            on_finding=lambda finding: _show(finding, run),
        )
        # 2. Read every chunk (`read_chunk`), and collapse what is found meanwhile.
        async with asyncio.TaskGroup() as group:
            findings = await collapse_findings(reading.read_all(group), collapse)
        # 3. Nothing found: look again at what the gate kept out, then where the best clue leads.
        if not findings and reading.gated:
            findings = await reading.look_again()
        if not findings and run.task.decisive:
            findings = await follow_clue(reading)
        # 4. Reduce. By hand more may be written than fits.
        findings = list(run.step("reduce", Findings(findings=tuple(findings))).findings)
        findings = await collapse_findings(stream(findings), collapse)
        conclusion = await reduce_findings(findings, collapse, request.letters, settling=request.settle_conflicts)
        if collapse.failed:
            run.account.warnings.append(
                f"{len(collapse.failed)} collapse calls failed; their best finding stood in for the rest."
            )
        coverage = replace(run.account.coverage(), findings_dropped=collapse.dropped)
        return run.account.answer(conclusion, coverage=coverage)


def _begin(document: Document, request: Request, resources: Resources) -> Run:
    run = begin_run(document, request, resources)
    fixed = map_call(NO_CHUNK, _longest_question(run), run.task, request, resources.tokenizer).prompt.token_ids
    run.split(resources.budget.room_tokens(fixed_tokens=len(fixed), output_tokens=run.task.map_output_tokens))
    return run


def _longest_question(run: Run) -> Sequence[int]:
    """As a second round may ask it."""
    values = {"question": run.question_ids, "added": [0] * MAX_ADDED_TOKENS}
    return run.task.known.encode(run.tokenizer, values) if run.task.decisive else run.question_ids


def _show(finding: Finding, run: Run) -> None:
    if run.task.decisive:  # one part's share of a count or a summary is no first answer
        run.account.show(conclude_from_one(finding), "the first supported finding")


def _graph(chunks: int, *, gated: bool, supported: bool) -> str:
    """The stages as Mermaid text."""
    steps = ["document", f"split[{chunks} chunks]"]
    steps += [f"gate[gate ×{chunks}]"] if gated else []
    steps += ["map[map the kept chunks]" if gated else f"map[map ×{chunks}]"]
    steps += ["support[support check]"] if supported else []
    steps += ["collapse[collapse while too long]", "reduce", "answer[answer with evidence]"]
    return "flowchart LR\n    " + " --> ".join(steps)
