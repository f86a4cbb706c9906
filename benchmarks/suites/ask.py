"""Whole runs: are answers right, is "not in the document" right, does the evidence state it, is confidence honest?

The variants ask the same questions. Calls are greedy and remembered, so variants share what they have in common, and
the times of a run that found calls remembered are left out. The first variant, `collect`, drops no finding: its
findings, right and wrong, are what the calibration is fitted on.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.bench import Bench, Options, Suite, task_name
from benchmarks.question_set import BenchDocument, BenchItem
from benchmarks.results_file import Row
from benchmarks.score import score_answer, states_answer
from benchmarks.statistics import auroc, calibration_error, fit_logistic, mean_estimate, paired_difference
from pipeline.answer import Answer
from pipeline.ask import ask
from pipeline.dispatch import Dispatcher
from pipeline.document import Document
from pipeline.errors import LongfoldError
from pipeline.events import CallEnded, ChunkMapped, Event
from pipeline.finding import Evidence, Finding
from pipeline.model import Call, Completion, Outcome, Usage
from pipeline.run import Request, Resources

COLLECT = "collect"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    COLLECT: {},
    "default": {},
    "no_gate": {"use_gate": False},
    "no_support": {"use_support_check": False},
    "copied_quotes": {"copy_quotes": True},
    "reference": {"strategy": "reference"},
}
"""What each changes in the request. `collect` is not compared: it differs in the resources."""


async def run(bench: Bench) -> None:
    variants = bench.options.variants or tuple(VARIANTS)
    async with bench.serve() as served:
        for variant in variants:
            for document in bench.documents():
                text = Document.from_text(document.text, document.name)
                for item in document.items:
                    if not bench.results.has(f"{variant}/{item.id}"):
                        await _ask(bench, served.remembering, variant, document, text, item)


async def _ask(
    bench: Bench,
    resources: Resources,
    variant: str,
    document: BenchDocument,
    text: Document,
    item: BenchItem,
) -> None:
    key = f"{variant}/{item.id}"
    heard = _Heard()
    if variant == COLLECT:
        resources = replace(resources, calibration=replace(resources.calibration, keep_probability=0.0))
    request = Request(
        question=item.question,
        task=task_name(document),
        chunk_tokens=bench.options.chunk_tokens,
        **{"strategy": "mapreduce", **VARIANTS[variant]},
    )
    tally = _Tally(resources.dispatcher)
    try:
        answer = await ask(text, request, replace(resources, emit=heard, dispatcher=tally))
    except LongfoldError as error:
        bench.results.add_unscored(key, f"{type(error).__name__}: {error}")
        return
    if answer.coverage.failed_chunks:
        failed = answer.coverage.failed_chunks
        bench.results.add_unscored(key, f"{len(failed)} chunks failed: {failed[0].message}")
        return
    verdict = score_answer(item, answer.text, answer.found)
    bench.results.add(key, **_row(variant, item, answer, verdict, heard) | tally.tokens())
    bench.say(f"{key} {item.kind}: {verdict} {answer.text[:60]!r} {answer.probability:.2f}")


class _Heard:
    """The part of a run's events that a score needs."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.remembered = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, ChunkMapped) and event.finding is not None:
            self.findings.append(event.finding)
        elif isinstance(event, CallEnded) and event.from_journal:
            self.remembered += 1


class _Tally:
    """Counts what all calls took, remembered ones included: an answer's own usage leaves those out."""

    def __init__(self, inner: Dispatcher) -> None:
        self._inner = inner
        self._usage = Usage()

    async def complete(self, calls: Iterable[Call]) -> AsyncIterator[Outcome]:
        async for outcome in self._inner.complete(calls):
            if isinstance(outcome, Completion):
                self._usage += outcome.usage
            yield outcome

    def tokens(self) -> dict[str, int]:
        return {"output_tokens": self._usage.output_tokens, "prompt_tokens": self._usage.prompt_tokens}


def _row(variant: str, item: BenchItem, answer: Answer, verdict: str, heard: _Heard) -> dict[str, Any]:
    return {
        "variant": variant,
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
        "chunks": answer.coverage.chunks,
        "extracted": answer.coverage.chunks_extracted,
        "seconds": None if heard.remembered else round(answer.total_seconds, 1),
        "findings": [_finding_row(item, finding) for finding in heard.findings],
    }


def _finding_row(item: BenchItem, finding: Finding) -> dict[str, Any]:
    """A finding counts as right if its answer is, and its evidence states it; on an absent fact none is."""
    states = _states(item, finding.evidence)
    right = item.kind != "absent" and score_answer(item, finding.answer, found=True) == "right"
    return {
        "gate": finding.gate_score,
        "support": finding.support_score,
        "words": finding.stated_confidence,
        "located": any(evidence.span for evidence in finding.evidence),
        "right": right and bool(states),
    }


def _states(item: BenchItem, evidence: Sequence[Evidence]) -> bool | None:
    return states_answer(item, [quote.span for quote in evidence if quote.span is not None])


def report(header: Row, rows: Sequence[Row]) -> list[str]:
    variants = [name for name in VARIANTS if name != COLLECT and any(row["variant"] == name for row in rows)]
    by_variant = {name: [row for row in rows if row["variant"] == name] for name in variants}
    lines = [
        f"{'variant':14} {'right':>12} {'absent right':>13} {'evidence':>12} {'wrong':>6} {'abst.':>6} "
        f"{'ECE':>6} {'AUROC':>6} {'output':>8}"
    ]
    lines += [_table_line(name, group) for name, group in by_variant.items()]
    lines += ["", "right answers (mean, 95 % interval), all kinds; and minus default on the same questions:"]
    for name, group in by_variant.items():
        line = f"  {name:14} {mean_estimate([_is_right(row) for row in group])}"
        if name != "default" and "default" in by_variant:
            line += f"   {_against(group, by_variant['default'])}"
        lines.append(line)
    for name, group in by_variant.items():
        lines += ["", f"{name}, right of asked by kind:", "  " + ", ".join(_by_kind(group))]
    return [*lines, "", *_calibration_lines(header, rows)]


def _table_line(name: str, rows: Sequence[Row]) -> str:
    present = [row for row in rows if row["kind"] != "absent"]
    absent = [row for row in rows if row["kind"] == "absent"]
    answered = [row for row in rows if row["found"]]
    stated = [row for row in present if row["found"]]
    probabilities = [row["probability"] for row in answered]
    right = [row["verdict"] == "right" for row in answered]
    return (
        f"{name:14} {_share([r['verdict'] == 'right' for r in present]):>12} "
        f"{_share([r['verdict'] == 'right' for r in absent]):>13} {_share([bool(r['states']) for r in stated]):>12} "
        f"{sum(r['verdict'] == 'wrong' for r in rows):>6} {sum(r['verdict'] == 'abstained' for r in rows):>6} "
        f"{calibration_error(probabilities, right):>6.3f} {auroc(probabilities, right):>6.3f} "
        f"{sum(row['output_tokens'] for row in rows) / max(1, len(rows)):>8.0f}"
    )


def _share(values: Sequence[bool]) -> str:
    return f"{sum(values)}/{len(values)} {sum(values) / len(values):.0%}" if values else "none"


def _is_right(row: Row) -> float:
    return float(row["verdict"] == "right")


def _against(rows: Sequence[Row], default: Sequence[Row]) -> str:
    base = {row["id"]: _is_right(row) for row in default}
    pairs = [(_is_right(row), base[row["id"]]) for row in rows if row["id"] in base]
    return str(paired_difference([a for a, _ in pairs], [b for _, b in pairs])) if pairs else "no pairs"


def _by_kind(rows: Sequence[Row]) -> list[str]:
    groups = {
        **{kind: [r for r in rows if r["kind"] == kind] for kind in ("lookup", "two_hop", "conflict", "absent")},
        "real text": [r for r in rows if r["real"]],
        "zh": [r for r in rows if r["language"] == "zh"],
    }
    return [f"{kind} {_share([r['verdict'] == 'right' for r in group])}" for kind, group in groups.items() if group]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationWeights:
    intercept: float
    gate: float
    support: float
    words: float


def fit_calibration(findings: Sequence[Row], clip_nats: float) -> CalibrationWeights | None:
    """Fit what `Calibration.probability` computes; None without both right and wrong findings."""
    located = [finding for finding in findings if finding["located"]]
    right = [bool(finding["right"]) for finding in located]
    if len(set(right)) < 2:
        return None
    features = np.array(
        [[_clip(f["gate"], clip_nats), _clip(f["support"], clip_nats), f["words"] - 3.0] for f in located]
    )
    intercept, gate, support, words = (float(weight) for weight in fit_logistic(features, right))
    return CalibrationWeights(intercept=intercept, gate=gate, support=support, words=words)


def _clip(score: float | None, nats: float) -> float:
    return 0.0 if score is None else max(-nats, min(nats, score))


def _calibration_lines(header: Row, rows: Sequence[Row]) -> list[str]:
    collected = [row for row in rows if row["variant"] == COLLECT]
    findings = [finding for row in collected for finding in row["findings"]]
    current = header["calibration"]
    weights = fit_calibration(findings, current["clip_nats"])
    if weights is None:
        return [f"calibration: {len(findings)} findings collected, not both right and wrong among them"]
    before = CalibrationWeights(**{name: current[name] for name in ("intercept", "gate", "support", "words")})
    held_out = _held_out(collected, current["clip_nats"])
    return [
        f"calibration on {len(findings)} findings, {sum(f['right'] for f in findings)} right:",
        f"  current        {_quality(findings, [before] * len(findings), current['clip_nats'])}",
        f"  fitted         {_quality(findings, [weights] * len(findings), current['clip_nats'])}",
        f"  held out       {_quality(*held_out, current['clip_nats'])}  (each document scored without itself)",
        "[calibration]",
        f"gate = {weights.gate:.3f}",
        f"support = {weights.support:.3f}",
        f"words = {weights.words:.3f}",
        f"intercept = {weights.intercept:.3f}",
    ]


def _held_out(rows: Sequence[Row], clip_nats: float) -> tuple[list[Row], list[CalibrationWeights]]:
    """Weights for each finding from the other documents only; what one document lacks others must give."""
    names = sorted({row["id"].rpartition("-")[0] for row in rows})
    findings: list[Row] = []
    weights: list[CalibrationWeights] = []
    for name in names:
        others = [f for row in rows if row["id"].rpartition("-")[0] != name for f in row["findings"]]
        fitted = fit_calibration(others, clip_nats)
        own = [f for row in rows if row["id"].rpartition("-")[0] == name for f in row["findings"]]
        if fitted is not None:
            findings += own
            weights += [fitted] * len(own)
    return findings, weights


def _quality(findings: Sequence[Row], weights: Sequence[CalibrationWeights], clip_nats: float) -> str:
    stated = []
    for finding, weight in zip(findings, weights, strict=True):
        logit = (
            weight.intercept
            + weight.gate * _clip(finding["gate"], clip_nats)
            + weight.support * _clip(finding["support"], clip_nats)
            + weight.words * (finding["words"] - 3)
        )
        stated.append(1 / (1 + math.exp(-logit)))
    right = [bool(finding["right"]) for finding in findings]
    return f"ECE {calibration_error(stated, right):.3f}, AUROC {auroc(stated, right):.3f}, n={len(findings)}"


SUITE = Suite(
    purpose="right answers, right abstentions, evidence and honest confidence, with and without each mechanism",
    run=run,
    report=report,
    quick=Options(model="", quick=True, documents=1, tokens=5_000, questions=2, languages=("en",)),
)
