"""The suites that go over HTTP, on the gateway and runner in their own processes with the scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.suites.peers import WAYS


@pytest.mark.parametrize("name", ["peers", "load"])
def test_the_suites_measure_report_and_resume_over_http(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langgraph")
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command = ["run", name, "--quick", "--model", "scripted", "--out", str(tmp_path), "--set", "prompts=2"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout.strip().splitlines()[-1])
    assert (summary["measured"], summary["unscored"]) == (2 * len(WAYS) if name == "peers" else 3, 0)
    again = CliRunner().invoke(app, [*command, "--resume"])
    assert json.loads(again.stdout.strip().splitlines()[-1]) == summary
