"""The weights that turn a finding's three scores into a probability, fitted on findings of known worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.results_file import Row
from benchmarks.statistics import auroc, calibration_error, fit_logistic
from benchmarks.variants import COLLECT


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


def calibration_lines(header: Row, rows: Sequence[Row]) -> list[str]:
    collected = [row for row in rows if row["variant"] == COLLECT]
    findings = [finding for row in collected for finding in row["findings"]]
    current = header["calibration"]
    weights = fit_calibration(findings, current["clip_nats"])
    if weights is None:
        return [f"calibration: {len(findings)} findings collected, not both right and wrong among them"]
    before = CalibrationWeights(**{name: current[name] for name in ("intercept", "gate", "support", "words")})
    clip_nats = current["clip_nats"]
    held_out = _held_out(collected, clip_nats)
    blanked = {part: _quality(*_held_out(_blank(collected, part), clip_nats), clip_nats) for part in _NEUTRAL}
    return [
        f"calibration on {len(findings)} findings, {sum(f['right'] for f in findings)} right:",
        f"  current        {_quality(findings, [before] * len(findings), clip_nats)}",
        f"  fitted         {_quality(findings, [weights] * len(findings), clip_nats)}",
        f"  held out       {_quality(*held_out, clip_nats)}  (each document scored without itself)",
        *(f"  without {part:<8}{quality}  (held out, fitted again)" for part, quality in blanked.items()),
        "[calibration]",
        f"gate = {weights.gate:.3f}",
        f"support = {weights.support:.3f}",
        f"words = {weights.words:.3f}",
        f"intercept = {weights.intercept:.3f}",
    ]


_NEUTRAL: Mapping[str, float | None] = {"gate": None, "support": None, "words": 3.0}
"""What each part of the confidence is when it says nothing."""


def _blank(rows: Sequence[Row], part: str) -> list[Row]:
    """The same findings as if `part` had not been there: what the other two can do, fitted without it."""
    return [{**row, "findings": [f | {part: _NEUTRAL[part]} for f in row["findings"]]} for row in rows]


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
            + weight.words * (finding["words"] - 3.0)
        )
        stated.append(1 / (1 + math.exp(-logit)))
    right = [bool(finding["right"]) for finding in findings]
    return f"ECE {calibration_error(stated, right):.3f}, AUROC {auroc(stated, right):.3f}, n={len(findings)}"
