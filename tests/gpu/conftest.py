"""Tests that need a CUDA GPU; skipped with that reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.machine import devices, no_device_reason


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    usable = devices()
    missing = pytest.mark.skip(reason="" if usable else f"needs a CUDA GPU: {no_device_reason()}")
    for item in items:
        if "gpu" in Path(item.fspath).parts:
            item.add_marker("gpu")
            if not usable:
                item.add_marker(missing)
