"""The weights that turn a finding's three scores into a probability, fitted on findings of known worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.data.items import document_of
from benchmarks.harness.results import Row
from benchmarks.harness.statistics import auroc, calibration_error, fit_logistic
from benchmarks.harness.variants import COLLECT
from pipeline.findings.confidence import Calibration, Weights


def fit_calibration(findings: Sequence[Row], calibration: Calibration) -> Weights | None:
    """Fit what `Calibration.probability` computes; None without both right and wrong findings."""
    located = [finding for finding in findings if finding["located"]]
    right = [bool(finding["right"]) for finding in located]
    if len(set(right)) < 2:
        return None
    features = np.array(
        [[calibration.clip(f["gate"]), calibration.clip(f["support"]), f["words"] - 3.0] for f in located]
    )
    intercept, gate, support, words = (float(weight) for weight in fit_logistic(features, right))
    return Weights(intercept=intercept, gate=gate, support=support, words=words)


def calibration_lines(header: Row, rows: Sequence[Row]) -> list[str]:
    collected = [row for row in rows if row["variant"] == COLLECT]
    findings = _findings(collected)
    current = Calibration(**{name: header["calibration"][name] for name in (*_WEIGHTS, "clip_nats")})
    weights = fit_calibration(findings, current)
    if weights is None:
        return [f"calibration: {len(findings)} findings collected, not both right and wrong among them"]
    blanked = {part: _blank(collected, part) for part in _NEUTRAL}
    return [
        f"calibration on {len(findings)} findings, {sum(f['right'] for f in findings)} right:",
        f"  current        {_quality(findings, [current] * len(findings), current)}",
        f"  fitted         {_quality(findings, [weights] * len(findings), current)}",
        f"  held out       {_held_out(collected, current)}  (each document scored without itself)",
        *(f"  without {part:<8}{_held_out(rows, current)}  (held out, fitted again)" for part, rows in blanked.items()),
        "[calibration]",
        *_weight_lines(weights),
        *_partial_lines("gate", fit_calibration(_findings(blanked["gate"]), current)),
        *_partial_lines("support", fit_calibration(_findings(blanked["support"]), current)),
    ]


_WEIGHTS = ("intercept", "gate", "support", "words")
_NEUTRAL: Mapping[str, float | None] = {"gate": None, "support": None, "words": 3.0}
"""The value of each part of the confidence that favours neither right nor wrong."""


def _weight_lines(weights: Weights) -> list[str]:
    return [f"{name} = {getattr(weights, name):.3f}" for name in _WEIGHTS]


def _partial_lines(part: str, weights: Weights | None) -> list[str]:
    return [f"[calibration.without_{part}]", *_weight_lines(weights)] if weights else []


def _findings(rows: Sequence[Row]) -> list[Row]:
    return [finding for row in rows for finding in row["findings"]]


def _blank(rows: Sequence[Row], part: str) -> list[Row]:
    """The same findings as if `part` had not been there: what the other two can do, fitted without it."""
    return [{**row, "findings": [f | {part: _NEUTRAL[part]} for f in row["findings"]]} for row in rows]


def _held_out(rows: Sequence[Row], calibration: Calibration) -> str:
    """Quality with weights for each finding from the other documents only; what one lacks others must give."""
    names = sorted({document_of(row["id"]) for row in rows})
    findings: list[Row] = []
    weights: list[Weights] = []
    for name in names:
        fitted = fit_calibration(_findings([row for row in rows if document_of(row["id"]) != name]), calibration)
        if fitted is not None:
            own = _findings([row for row in rows if document_of(row["id"]) == name])
            findings += own
            weights += [fitted] * len(own)
    return _quality(findings, weights, calibration)


def _quality(findings: Sequence[Row], weights: Sequence[Weights], calibration: Calibration) -> str:
    stated = [
        weight.weigh(gate=calibration.clip(f["gate"]), support=calibration.clip(f["support"]), words=f["words"])
        for f, weight in zip(findings, weights, strict=True)
    ]
    right = [bool(finding["right"]) for finding in findings]
    return f"ECE {calibration_error(stated, right):.3f}, AUROC {auroc(stated, right):.3f}, n={len(findings)}"
