"""Tests that need a CUDA GPU; skipped with that reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.machine import gpus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="needs a CUDA GPU, and nvidia-smi shows none")
    for item in items:
        if "gpu" in Path(item.fspath).parts:
            item.add_marker("gpu")
            if not gpus():
                item.add_marker(missing)
