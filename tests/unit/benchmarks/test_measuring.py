"""Statistics, results files, fits and the suites themselves on the scripted model."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import RESULTS, app, change_options
from benchmarks.fit.calibration import calibration_lines, fit_calibration
from benchmarks.fit.gate import clear_score, fit_rule, measure_rule, row_auc
from benchmarks.harness.pairs import METRICS
from benchmarks.harness.results import ResultsFile, find_resumable, read_results, scored, unscored_keys
from benchmarks.harness.statistics import (
    auc,
    auroc,
    calibration_error,
    fit_logistic,
    growth_exponent,
    mean_estimate,
    paired_difference,
)
from benchmarks.harness.suite import Options
from benchmarks.suites import SUITES
from pipeline.errors import ReplicaUnavailable, SettingInvalid
from pipeline.findings.confidence import Calibration, GateSettings
from serving.models.catalogue import read_catalogue

HEADER = {"suite": "gate", "model": {"name": "m"}, "settings": {"seed": 1}}


def gate_row(scores: list[float], states: list[int], **changes: object) -> dict[str, object]:
    return {"scores": scores, "states": states, "links": [], "conflicts": []} | changes


def test_auc_counts_pairs_in_the_right_order_and_ties_as_half() -> None:
    assert auc([2.0, 1.0], [0.0]) == 1.0
    assert auc([1.0], [1.0, 2.0]) == 0.25
    assert math.isnan(auc([], [1.0]))
    assert auroc([0.9, 0.1], [True, False]) == 1.0


def test_calibration_error_is_zero_when_confidence_is_the_share_of_right_answers() -> None:
    assert calibration_error([0.75] * 4, [True, True, True, False]) == pytest.approx(0.0)
    assert calibration_error([1.0] * 4, [False] * 4) == pytest.approx(1.0)


def test_bootstrap_interval_holds_the_mean_and_is_the_same_every_time() -> None:
    values = [float(n % 3) for n in range(60)]
    first = mean_estimate(values)
    assert first == mean_estimate(values)
    assert first.low < first.value < first.high


def test_paired_difference_sees_what_unpaired_noise_would_hide() -> None:
    base = list(np.random.default_rng(0).normal(0, 10, 40))
    estimate = paired_difference([value + 1 for value in base], base)
    assert estimate.low == pytest.approx(1.0)


def test_logistic_fit_recovers_the_weights_that_made_the_data() -> None:
    source = np.random.default_rng(1)
    features = source.normal(0, 1, (4_000, 2))
    chance = 1 / (1 + np.exp(-(0.5 + 2 * features[:, 0] - features[:, 1])))
    right = [bool(value) for value in source.random(4_000) < chance]
    assert fit_logistic(features, right) == pytest.approx([0.5, 2.0, -1.0], abs=0.2)


def test_growth_is_the_power_of_the_size() -> None:
    assert growth_exponent([1, 10, 100], [2, 20, 200]) == pytest.approx(1.0)
    assert growth_exponent([1, 10, 100], [2, 200, 20_000]) == pytest.approx(2.0)


def test_the_fitted_margin_keeps_every_stating_chunk_with_as_little_as_possible() -> None:
    rows = [gate_row([0.0, -1.0, -2.0, -9.0], [2]), gate_row([3.0, 2.9, -5.0, -6.0], [0])]
    fit = fit_rule(rows, keep_at_least=1)
    assert fit.keep_margin == 2.0
    assert fit.recall == 1.0
    found, kept = measure_rule(rows, GateSettings(lexical_nats=0.0, keep_margin=1.75, keep_at_least=1))
    assert found == [False, True]
    assert kept == [0.5, 0.5]


def test_words_lift_a_stating_chunk_that_the_model_overlooks() -> None:
    row = gate_row([0.0, 0.5], [0], lexical=[1.0, 0.0])
    assert row_auc(row) == 0.0
    assert row_auc(row, 1.0) == 1.0
    assert fit_rule([row], keep_at_least=1, lexical_nats=1.0).keep_margin == 0.0


def test_a_chunk_that_contradicts_or_links_is_no_negative() -> None:
    assert row_auc(gate_row([5.0, 1.0, 0.0], [1], conflicts=[0])) == 1.0


def test_clear_score_is_where_nearly_every_chunk_states_the_answer() -> None:
    rows = [gate_row([2.0, -3.0], [0]) for _ in range(6)] + [gate_row([1.0, -3.0], []) for _ in range(3)]
    assert clear_score(rows, 0.0, precision=0.9) == 2.0
    assert clear_score([gate_row([1.0, 2.0], [])] * 9, 0.0) is None


def test_calibration_is_fitted_on_located_findings_only() -> None:
    findings = [
        {"gate": score, "support": score, "words": 5, "located": True, "right": score > 0}
        for score in (-3.0, -2.0, -1.0, 1.0, 2.0, 3.0)
    ]
    weights = fit_calibration(findings, Calibration())
    assert weights is not None
    assert weights.gate > 0
    assert weights.support > 0
    assert fit_calibration([f | {"located": False} for f in findings], Calibration()) is None


def test_the_shipped_calibration_is_what_its_results_give_to_the_digit() -> None:
    header, rows = read_results(RESULTS / "ask-qwen2.5-coder-1.5b-20261122-032524.jsonl")
    lines = calibration_lines(header, scored(rows))
    fitted = tomllib.loads("\n".join(lines[lines.index("[calibration]") :]))["calibration"]
    shipped = asdict(read_catalogue()["qwen2.5-coder-1.5b"].calibration)
    for name in ("intercept", "gate", "support", "words"):
        assert fitted[name] == shipped[name]
    assert fitted["without_gate"] == shipped["without_gate"]
    assert fitted["without_support"] == shipped["without_support"]


def test_a_resumed_file_knows_what_is_measured_and_tries_again_what_failed(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "gate-1.jsonl", HEADER)
    results.add("a", value=1)
    results.add_unscored("b", "the replica was lost")
    resumed = ResultsFile(tmp_path / "gate-1.jsonl", HEADER)
    assert resumed.has("a")
    assert not resumed.has("b")
    _, rows = read_results(resumed.path)
    assert unscored_keys(rows) == ["b"]
    resumed.add("b", value=2)
    _, rows = read_results(resumed.path)
    assert unscored_keys(rows) == []
    assert len(scored(rows)) == 2


def test_failures_in_a_row_end_the_run(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "gate-1.jsonl", HEADER)
    results.add_unscored("a", "lost")
    results.add("b")
    results.add_unscored("c", "lost")
    results.add_unscored("d", "lost")
    with pytest.raises(ReplicaUnavailable):
        results.add_unscored("e", "lost")


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "gate-1.jsonl", HEADER)
    results.add("a", value=1)
    with results.path.open("a") as file:
        file.write('{"key": "b", "val')
    _, rows = read_results(results.path)
    assert [row["key"] for row in rows] == ["a"]
    ResultsFile(results.path, HEADER).add("c", value=3)
    _, rows = read_results(results.path)
    assert [row["key"] for row in rows] == ["a", "c"]


def test_an_answer_may_hold_any_line_separator(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "gate-1.jsonl", HEADER)
    results.add("a", answer="one\u2028two\u0085three")
    assert ResultsFile(results.path, HEADER).has("a")


def test_only_a_file_with_the_same_settings_is_resumed(tmp_path: Path) -> None:
    path = ResultsFile(tmp_path / "gate-1.jsonl", HEADER).path
    assert find_resumable(tmp_path, HEADER) == path
    assert find_resumable(tmp_path, HEADER | {"settings": {"seed": 2}}) is None


def test_sizes_are_changed_by_name_and_nothing_else_is() -> None:
    changed = change_options(Options(model="m"), ["tokens=5000", "variants=default,no_gate", "computed=yes"])
    assert changed.tokens == 5000
    assert changed.variants == ("default", "no_gate")
    assert changed.computed
    for wrong in ("model=x", "tokens", "tokens=many", "computed=perhaps"):
        with pytest.raises(SettingInvalid):
            change_options(Options(model="m"), [wrong])


NEEDS_MORE = {"saturation", "longcontext", "scale", "split", "gateway", "peers", "load"}
"""An engine, a cluster, a gateway, or minutes: more than a unit test has."""


@pytest.mark.parametrize("name", sorted(set(SUITES) - NEEDS_MORE))
def test_a_suite_measures_reports_and_resumes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(tmp_path / "cache"))
    command = ["run", name, "--quick", "--model", "scripted", "--out", str(tmp_path), "--set", "tokens=2000"]
    command += ["--set", "variants=collect,default,reference"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout.strip().splitlines()[-1])
    assert summary["measured"] > 0
    assert summary["unscored"] == 0
    assert "<svg" in next(tmp_path.glob(f"{name}-*.svg")).read_text("utf-8")
    again = CliRunner().invoke(app, [*command, "--resume"])
    assert json.loads(again.stdout.strip().splitlines()[-1]) == summary


@pytest.mark.parametrize(
    ("computed", "order"), [("no", "default default other other"), ("yes", "default other other default")]
)
def test_variants_take_turns_where_every_call_is_computed(
    computed: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of a variant that always comes second would be those of a document that another has read."""
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(tmp_path / "cache"))
    command = ["run", "ablation", "--quick", "--model", "scripted", "--out", str(tmp_path), "--set", "tokens=2000"]
    command += ["--set", "variants=document_order", "--set", f"computed={computed}"]
    assert CliRunner().invoke(app, command).exit_code == 0
    rows = read_results(next(tmp_path.glob("ablation-*.jsonl")))[1]
    assert [row["variant"].replace("document_order", "other") for row in rows] == order.split()
    assert [row["first"] for row in rows if row["variant"] == "default"] == [True, False]


def test_seconds_of_a_first_question_are_not_compared() -> None:
    """Whoever is first on a document pays for its reading."""
    first, later = ({"first": first, "seconds": 9.0} for first in (True, False))
    assert METRICS["later_seconds"](first) is None
    assert METRICS["later_seconds"](later) == 9.0
