"""The benchmark of long-context decoding on a GPU, with an 8B architecture and random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.harness.results import read_results


def test_both_ways_are_measured_with_the_gpus_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(tmp_path / "cache"))
    command = ["run", "longcontext", "--quick", "--model", "random/llama-3-8b", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    assert summary["unscored"] == 0
    _, rows = read_results(Path(summary["file"]))
    assert {row["side"] for row in rows} == {"native", "longfold"}
    assert all(row["weights"] == "random weights, speed only" for row in rows)
    assert all(row["peak_gpu_bytes"] > row["weights_bytes"] for row in rows)
