"""One question of the question set asked in one way, and the row that is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.data.items import BenchDocument, BenchItem
from benchmarks.data.score import score_answer, states_answer
from benchmarks.harness.measure import MeasuredRun, measure_run, quoted_spans
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.suite import Bench, take_turns, task_name
from benchmarks.harness.variants import Variant
from pipeline.documents.document import Document
from pipeline.findings.finding import Evidence, Finding
from pipeline.run.request import Request
from pipeline.run.strategy import Resources


async def ask_everything(bench: Bench, resources: Resources, variants: Sequence[Variant]) -> None:
    """All questions in one way, then in the next: what variants share is then remembered."""
    documents = bench.documents()
    asked = [(variant, document, item) for variant in variants for document in documents for item in document.items]
    await _ask_all(bench, resources, asked)


async def ask_in_turns(
    bench: Bench, resources: Resources, variants: Sequence[Variant], documents: Sequence[BenchDocument]
) -> None:
    """Each question in all ways before the next, another way first each time: a slow minute favours none."""
    asked = [
        (variant, document, item)
        for document in documents
        for number, item in enumerate(document.items)
        for variant in take_turns(variants, number)
    ]
    await _ask_all(bench, resources, asked)


async def _ask_all(
    bench: Bench, resources: Resources, asked: Sequence[tuple[Variant, BenchDocument, BenchItem]]
) -> None:
    with show_progress(len(asked), "questions") as advance:
        for variant, document, item in asked:
            await _ask(bench, resources, variant, document, item)
            advance()


async def _ask(bench: Bench, resources: Resources, variant: Variant, document: BenchDocument, item: BenchItem) -> None:
    """Keep a row, unless it is there."""
    key = f"{variant.name}/{item.id}"
    if bench.results.has(key):
        return
    sized = replace(resources, chunk_tokens=bench.options.chunk_tokens or resources.chunk_tokens)
    request = Request(
        question=item.question, task=task_name(document, item), **{"strategy": "mapreduce", **variant.request}
    )
    text = Document.from_text(document.text, document.name)
    measured = await measure_run(bench, text, request, variant.resources(sized))
    if isinstance(measured, str):
        bench.results.add_unscored(key, measured)
        return
    answer = measured.answer
    verdict = score_answer(item, answer.text, answer.found)
    bench.results.add(key, first=item is document.items[0], **_row(variant, item, measured, verdict))
    bench.say(f"{key} {item.kind}: {verdict} {answer.text[:60]!r} {answer.probability:.2f}")


def _row(variant: Variant, item: BenchItem, measured: MeasuredRun, verdict: str) -> dict[str, Any]:
    answer = measured.answer
    return {
        "variant": variant.name,
        "id": item.id,
        "kind": item.kind,
        "language": item.language,
        "real": item.from_real_text,
        "verdict": verdict,
        "answer": answer.text[:200],
        "accepted": list(item.accepted)[:1],
        "found": answer.found,
        "states": _states(item, answer.evidence) if answer.found else None,
        "probability": round(answer.probability, 4),
        "findings": [_finding_row(item, finding) for finding in measured.findings],
        **measured.row(),
    }


def _finding_row(item: BenchItem, finding: Finding) -> dict[str, Any]:
    """A finding counts as right if its answer is, and its evidence states it; on an absent fact none is."""
    states = _states(item, finding.evidence)
    right = item.kind != "absent" and score_answer(item, finding.answer, found=True) == "right"
    return {
        "gate": finding.gate_score,
        "support": finding.support_score,
        "words": finding.stated_confidence,
        "located": bool(finding.located_quotes),
        "right": right and bool(states),
    }


def _states(item: BenchItem, evidence: Sequence[Evidence]) -> bool | None:
    return states_answer(item, quoted_spans(evidence))
