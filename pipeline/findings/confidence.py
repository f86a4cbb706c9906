"""What was fitted for a model: its relevance gate, and from three scores one probability that a finding is right.

A small model says confidence 5 nearly always. The log-probabilities of the relevance gate and of the support check
tell more; a logistic model over all three is fitted per model on generated data (`python -m benchmarks run ask`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.findings.finding import Finding
from pipeline.llm.complete import yes_score
from pipeline.llm.model import Completion

UNFITTED_WORDS = 0.6
"""Logit per step of stated confidence where nothing better is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """logit P(right) = intercept + gate·g + support·s + words·(w − 3).

    The defaults are for a model that was never fitted: the words count as they stand, the scores a little.
    """

    intercept: float = 0.0
    gate: float = 0.2
    support: float = 0.5
    words: float = UNFITTED_WORDS

    def weigh(self, *, gate: float, support: float, words: float) -> float:
        """The probability."""
        logit = self.intercept + self.gate * gate + self.support * support + self.words * (words - 3)
        return 1.0 / (1.0 + math.exp(-logit))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(Weights):
    """The weights of a model, and what else decides over a finding; scores are clipped to ±`clip_nats`."""

    clip_nats: float = 8.0
    unlocated_cap: float = 0.2
    """Highest probability of a finding none of whose quotes stands in the document."""
    keep_probability: float = 0.15
    """Findings below this are dropped as not supported."""
    task_intercepts: Mapping[str, float] = field(default_factory=dict)
    """The intercept of a task that has another: prompts in another language move the level of both scores."""
    without_gate: Weights | None = None
    without_support: Weights | None = None
    """Fitted on the same findings without that score, for runs that leave it out: an intercept makes up for the level
    of the scores that it was fitted with. Not given: the missing score counts as 0, as saying nothing either way."""

    def for_task(self, name: str) -> Calibration:
        """Where a score is left out the intercept moves by the other's share: both stand higher by the same nats."""
        intercept = self.task_intercepts.get(name, self.intercept)
        by_nats = (intercept - self.intercept) / ((self.gate + self.support) or 1.0)
        return replace(
            self,
            intercept=intercept,
            without_gate=_move(self.without_gate, by_nats),
            without_support=_move(self.without_support, by_nats),
        )

    def probability(self, *, gate: float | None, support: float | None, words: int) -> float:
        """Without any score the words count as they do for a model that was never fitted."""
        if gate is None and support is None:
            return Weights().weigh(gate=0.0, support=0.0, words=words)
        fitted = self.without_gate if gate is None else self.without_support if support is None else self
        return (fitted or self).weigh(gate=self.clip(gate), support=self.clip(support), words=words)

    def clip(self, score: float | None) -> float:
        return 0.0 if score is None else max(-self.clip_nats, min(self.clip_nats, score))


def _move(weights: Weights | None, by_nats: float) -> Weights | None:
    return weights and replace(weights, intercept=weights.intercept + by_nats * (weights.gate + weights.support))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Fitted per model on generated data for a recall of at least 99.5 % (`python -m benchmarks run gate`)."""

    enabled: bool = False
    """False for models too weak to be gated: every chunk is then mapped."""
    lexical_nats: float = 1.0
    """What the chunk that is lexically closest to the question gains on the model's score; the others their share."""
    keep_margin: float = 4.0
    """Chunks within this many nats of the document's best score are kept."""
    keep_at_least: int = 4
    clear_score: float = 1.0
    """A chunk that scores this much is read at once, while others are still being gated."""


def judge_finding(finding: Finding, support: Completion | None, calibration: Calibration) -> Finding:
    """Fill in the support score and the calibrated probability. Without located evidence the probability is capped."""
    score = yes_score(support) if support else None
    probability = calibration.probability(gate=finding.gate_score, support=score, words=finding.stated_confidence)
    if not finding.located_quotes:
        probability = min(probability, calibration.unlocated_cap)
    return replace(finding, support_score=score, probability=probability)
