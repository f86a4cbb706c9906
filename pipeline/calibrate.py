"""From three scores to one probability that a finding is right.

A small model says confidence 5 nearly always. The log-probabilities of the relevance gate and of the support check
tell more; a logistic model over all three is fitted per model on generated data (`python -m benchmarks run ask`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

UNFITTED_WORDS = 0.6
"""Logit per step of stated confidence where nothing better is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """logit P(right) = intercept + gate·g + support·s + words·(w − 3), scores clipped to ±`clip_nats`.

    The defaults are for a model that was never fitted: the words count as they stand, the scores a little.
    """

    intercept: float = 0.0
    gate: float = 0.2
    support: float = 0.5
    words: float = UNFITTED_WORDS
    clip_nats: float = 8.0
    unlocated_cap: float = 0.2
    """Highest probability of a finding none of whose quotes stands in the document."""
    keep_probability: float = 0.15
    """Findings below this are dropped as not supported."""
    task_intercepts: Mapping[str, float] = field(default_factory=dict)
    """The intercept of a task that has another: prompts in another language move the level of both scores."""

    def for_task(self, name: str) -> Calibration:
        return replace(self, intercept=self.task_intercepts.get(name, self.intercept))

    def probability(self, *, gate: float | None, support: float | None, words: int) -> float:
        """A missing score counts as 0, that is, as saying nothing either way.

        Without any score the words count as they do for a model that was never fitted: a fitted intercept makes up for
        the level of scores that are not there.
        """
        if gate is None and support is None:
            return 1.0 / (1.0 + math.exp(-UNFITTED_WORDS * (words - 3)))
        logit = (
            self.intercept
            + self.gate * self._clip(gate)
            + self.support * self._clip(support)
            + self.words * (words - 3)
        )
        return 1.0 / (1.0 + math.exp(-logit))

    def _clip(self, score: float | None) -> float:
        return 0.0 if score is None else max(-self.clip_nats, min(self.clip_nats, score))
