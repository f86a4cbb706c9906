"""Two results files are compared item by item, and only where items are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.harness.compare import compare_results
from benchmarks.harness.pairs import METRICS, pair_rows
from benchmarks.harness.results import ResultsFile
from pipeline.errors import CallerError


def results(path: Path, variant: str, verdicts: str, *, suite: str = "ask", seed: int = 1) -> Path:
    """One row per letter: r(ight), w(rong), x (failed)."""
    header = {"suite": suite, "date": "d", "model": {"name": "m"}, "settings": {"seed": seed}, "commit": "c"}
    file = ResultsFile(path, header)
    for number, verdict in enumerate(verdicts):
        key = f"{variant}/{number}"
        if verdict == "x":
            file.add_unscored(key, "lost")
        else:
            right = "right" if verdict == "r" else "wrong"
            row = {"variant": variant, "id": str(number), "kind": "lookup", "verdict": right, "states": True}
            file.add(key, **row, seconds=2.0, prompt_tokens=[1, 2], accepted=[f"{seed}"])
    return path


def test_items_are_paired_and_failures_are_not_counted_as_wrong(tmp_path: Path) -> None:
    a, b = results(tmp_path / "a.jsonl", "x", "rrrx"), results(tmp_path / "b.jsonl", "y", "rwrr")
    text = "\n".join(compare_results(a, b))
    assert "x | y: 3 pairs, without a partner: 1 of B" in text
    assert "A      1.000   B      0.667   A - B 0.333" in text
    assert "3 measured, 1 unscored" in text
    assert "made alike" in text
    assert "prompt_tokens" not in text  # a list of counts is no number


def test_the_same_name_for_another_question_is_no_pair(tmp_path: Path) -> None:
    a, b = results(tmp_path / "a.jsonl", "x", "rr"), results(tmp_path / "b.jsonl", "x", "rr", seed=2)
    with pytest.raises(CallerError, match="no item in common"):
        compare_results(a, b)


def test_files_of_different_suites_are_refused(tmp_path: Path) -> None:
    a = results(tmp_path / "a.jsonl", "x", "r")
    with pytest.raises(CallerError, match="different things"):
        compare_results(a, results(tmp_path / "b.jsonl", "x", "r", suite="gate"))
    with pytest.raises(CallerError, match="no results file"):
        compare_results(a, tmp_path / "absent.jsonl")


def test_the_command_prints_what_differs(tmp_path: Path) -> None:
    a, b = results(tmp_path / "a.jsonl", "x", "rr"), results(tmp_path / "b.jsonl", "x", "rw")
    done = CliRunner().invoke(app, ["compare", str(a), str(b)])
    assert done.exit_code == 0, done.output
    assert "x: 2 pairs" in done.stdout


def test_a_list_of_facts_counts_as_their_share() -> None:
    assert METRICS["facts"]({"facts": [True, False]}) == 0.5
    assert METRICS["seconds"]({"seconds": None}) is None
    assert METRICS["right, evidence too"]({"verdict": "right", "kind": "absent", "states": None}) == 1.0
    assert METRICS["right, evidence too"]({"verdict": "right", "kind": "lookup", "states": False}) == 0.0


def test_pairs_follow_the_order_of_the_first() -> None:
    first = [{"key": f"a/{n}", "variant": "a"} for n in (2, 0, 1)]
    second = [{"key": f"b/{n}", "variant": "b"} for n in (0, 1, 2, 3)]
    assert [(one["key"], other["key"]) for one, other in pair_rows(first, second)] == [
        ("a/2", "b/2"),
        ("a/0", "b/0"),
        ("a/1", "b/1"),
    ]
