"""What a finding's scores come to, also where one of them is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.findings.confidence import Calibration, Weights
from serving.models.catalogue import read_catalogue

FITTED = Calibration(
    intercept=-4.0,
    gate=0.6,
    support=0.8,
    words=0.4,
    task_intercepts={"question_answering_zh": -6.8},
    without_gate=Weights(intercept=-3.0, gate=0.0, support=1.0, words=0.4),
    without_support=Weights(intercept=-4.2, gate=1.3, support=0.0, words=0.6),
)


def test_a_score_that_is_left_out_has_weights_of_its_own() -> None:
    """The intercept of the others expects its level: 1.9 nats of support would come to 18 % for want of a gate."""
    left_out = FITTED.probability(gate=None, support=1.9, words=5)
    assert left_out == pytest.approx(
        Weights(intercept=-3.0, support=1.0, words=0.4).weigh(gate=0, support=1.9, words=5)
    )
    assert left_out > replace(FITTED, without_gate=None).probability(gate=None, support=1.9, words=5)
    assert FITTED.probability(gate=2.0, support=None, words=5) == pytest.approx(
        Weights(intercept=-4.2, gate=1.3, words=0.6).weigh(gate=2.0, support=0, words=5)
    )


def test_scores_beyond_the_clip_count_as_the_clip() -> None:
    assert FITTED.probability(gate=40.0, support=-40.0, words=3) == FITTED.probability(gate=8.0, support=-8.0, words=3)


def test_a_task_moves_what_is_left_by_its_share() -> None:
    """A level 2 nats higher costs 2.8 of the intercept with both scores, 2 with support alone, 2.6 with the gate."""
    moved = FITTED.for_task("question_answering_zh")
    assert moved.intercept == -6.8
    assert moved.without_gate is not None
    assert moved.without_gate.intercept == pytest.approx(-5.0)
    assert moved.without_support is not None
    assert moved.without_support.intercept == pytest.approx(-6.8)
    both = moved.probability(gate=3.0, support=3.0, words=4)
    assert both == pytest.approx(FITTED.probability(gate=1.0, support=1.0, words=4))
    assert FITTED.for_task("question_answering") == FITTED


def test_the_default_model_is_fitted_for_runs_without_gate_or_check() -> None:
    calibration = read_catalogue()["qwen2.5-coder-1.5b"].calibration
    for missing in ({"gate": None, "support": 4.0}, {"gate": 4.0, "support": None}):
        assert calibration.probability(**missing, words=5) > 0.5
