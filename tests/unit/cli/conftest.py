"""Fixtures of several unit tests."""

from pathlib import Path

import pytest

from tests.unit.cli.command_stage import Stage, prepare_stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return prepare_stage(tmp_path, monkeypatch)
