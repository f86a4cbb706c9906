"""A server ends the cluster that it has started, and never the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.cluster import ownership
from serving.models.profile import ModelProfile, load_profile
from serving.settings import Settings
from tests.tiny_model import make_chat_model


class FakeKeeper:
    """`daemon`, without a cluster."""

    def __init__(self) -> None:
        self.is_up = False

    def find(self, folder: Path) -> object | None:
        return object() if self.is_up else None

    def up(self, *_: Any, **__: Any) -> None:
        self.is_up = True

    def down(self, folder: Path) -> bool:
        self.is_up = False
        return True


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeKeeper:
    fake = FakeKeeper()
    for name in ("find", "up", "down"):
        monkeypatch.setattr(f"serving.cluster.daemon.{name}", getattr(fake, name))
    monkeypatch.setattr(ownership, "cluster_folder", lambda settings: tmp_path)
    monkeypatch.setattr(ownership, "place_model", lambda settings, profile: None)
    return fake


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def profile(tmp_path: Path) -> ModelProfile:
    return load_profile(make_chat_model(tmp_path / "model"))


def start(settings: Settings, profile: ModelProfile, pid: int) -> None:
    ownership.start(settings, profile, report=lambda _: None, server_pid=pid)


def test_what_a_server_started_ends_with_it(keeper: FakeKeeper, settings: Settings, profile: ModelProfile) -> None:
    start(settings, profile, 11)
    start(settings, profile, 11)  # its runner once more
    ownership.stop(settings, 12)
    assert keeper.is_up, "another server's end does not concern it"
    ownership.stop(settings, 11)
    assert not keeper.is_up


def test_the_users_own_cluster_stays(keeper: FakeKeeper, settings: Settings, profile: ModelProfile) -> None:
    keeper.is_up = True
    start(settings, profile, 11)
    ownership.stop(settings, 11)
    assert keeper.is_up


def test_one_that_the_user_then_asks_for_stays(keeper: FakeKeeper, settings: Settings, profile: ModelProfile) -> None:
    start(settings, profile, 11)
    ownership.release_to_user(settings)
    ownership.stop(settings, 11)
    assert keeper.is_up


def test_one_that_a_dead_server_left_behind_is_taken_over(
    keeper: FakeKeeper, settings: Settings, profile: ModelProfile
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    start(settings, profile, dead.pid)
    ownership.take_over(settings, os.getpid())
    ownership.stop(settings, os.getpid())
    assert not keeper.is_up


def test_one_of_a_server_that_lives_is_left_alone(
    keeper: FakeKeeper, settings: Settings, profile: ModelProfile
) -> None:
    start(settings, profile, os.getppid())
    ownership.take_over(settings, os.getpid())
    ownership.stop(settings, os.getpid())
    assert keeper.is_up
