"""`longfold keys` and `longfold db`: what they print, and what goes where."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serving.cli.main import app

SECRET = re.compile(r"lf_([a-z0-9]{10})_[A-Za-z0-9_-]{43}\n")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGFOLD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("LONGFOLD_DATABASE_URL", raising=False)
    return tmp_path / "state"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_a_key_is_made_shown_once_listed_and_revoked() -> None:
    made = run("keys", "create", "team a", "--owner", "a", "--expires-in", "90d", "--tokens-per-day", "5000")
    match = SECRET.fullmatch(made.stdout)
    assert match, "standard output is the secret alone"
    assert "not shown again" in made.stderr
    assert made.stdout.strip() not in made.stderr
    key_id = match[1]
    listed = run("keys", "list").stdout
    assert key_id in listed
    assert "team a  owner a  files,infer  any/min, 5,000 tokens/day  never used" in listed
    assert made.stdout.strip() not in listed
    assert run("keys", "revoke", key_id).exit_code == 0
    assert "revoked" in run("keys", "list").stdout


def test_without_keys_the_list_says_how_to_make_one() -> None:
    assert "longfold keys create NAME" in run("keys", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "a", "--expires-in", "soon"], "such as 90d"),
        (["create", "a", "--scope", "god"], "admin, files, infer"),
        (["create", ""], "needs a name"),
        (["revoke", "nobody"], "There is no key 'nobody'; there are none"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(arguments: list[str], told: str) -> None:
    failed = run("keys", *arguments)
    assert failed.exit_code == 2
    assert told in failed.stderr
    assert "There is no key" in run("keys", "list").stdout


def test_the_database_is_made_by_upgrade_and_only_by_it(state: Path) -> None:
    unchecked = run("db", "check")
    assert unchecked.exit_code == 2
    assert "longfold db upgrade" in unchecked.stderr
    assert "now, was at none" in run("db", "upgrade").stdout
    assert "already" in run("db", "upgrade").stdout
    assert "is sound" in run("db", "check").stdout
    assert (state / "longfold.sqlite").stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
