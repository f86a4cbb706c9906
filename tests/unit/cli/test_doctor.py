"""What a machine has is what this process may use of it; what is wrong comes with how to fix it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving import machine
from serving.cli.doctor import allocator_check, machine_checks, run_doctor, worst
from serving.machine import Gpu, cpu_count, cpu_features, free_memory_bytes, gpus, parse_gpus, tcmalloc_path
from serving.models.check_result import CheckResult, Status, bad, ok, warn
from tests.tiny_model import make_model

MIB = 1 << 20


def make_root(tmp_path: Path, files: dict[str, str]) -> Path:
    """Write a root file system with 8,000 MiB of free memory and the given files."""
    for name, text in {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {8000 * 1024} kB\n", **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_without_control_groups_the_machines_figures_count(tmp_path: Path) -> None:
    root = make_root(tmp_path, {})
    assert free_memory_bytes(root) == 8000 * MIB
    assert cpu_count(root) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("group", ["/", "/job/step", "/of/the/host"])
def test_a_limit_of_version_2_counts_on_every_level(tmp_path: Path, group: str) -> None:
    here = "sys/fs/cgroup" + ("/job" if group == "/job/step" else "")
    root = make_root(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{group}\n",
            "sys/fs/cgroup/job/step/memory.max": "max\n",
            f"{here}/memory.max": f"{1000 * MIB}\n",
            f"{here}/memory.current": f"{600 * MIB}\n",
            f"{here}/memory.stat": f"anon 5\ninactive_file {100 * MIB}\n",
            f"{here}/cpu.max": "50000 100000\n",
        },
    )
    assert free_memory_bytes(root) == 500 * MIB, "the page cache can be had back"
    assert cpu_count(root) == 1


def test_a_limit_of_version_1_counts(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{300 * MIB}\n",
            "sys/fs/cgroup/memory/x/memory.usage_in_bytes": f"{400 * MIB}\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
        },
    )
    assert free_memory_bytes(root) == 0
    assert cpu_count(root) == 1


def test_version_1_writes_no_limit_as_a_huge_number(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    root = make_root(tmp_path, files)
    assert free_memory_bytes(root) == 8000 * MIB
    assert cpu_count(root) == len(os.sched_getaffinity(0))


def test_gpus_are_read_as_the_driver_reports_them() -> None:
    reported = "0, GPU-1a, NVIDIA H200, 143771, 143000, 9.0\n1, MIG-x/7, NVIDIA GB10, [N/A], [N/A], [N/A]\n"
    first, second = parse_gpus(reported)
    assert (first.uuid, first.name, first.free_bytes) == ("GPU-1a", "NVIDIA H200", 143000 * MIB)
    assert (second.uuid, second.memory_bytes) == ("MIG-x/7", 0)
    assert (first.compute_capability, second.compute_capability) == (9.0, 0.0)


def test_a_driver_that_fails_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == ()


def test_tcmalloc_is_found_and_the_minimal_one_preferred(tmp_path: Path) -> None:
    assert tcmalloc_path(tmp_path) is None
    assert "GLIBC_TUNABLES" in allocator_check(tmp_path).detail
    names = ("libtcmalloc.so.4", "libtcmalloc_minimal.so.4")
    make_root(tmp_path, {f"usr/lib/x86_64-linux-gnu/{name}": "" for name in names})
    found = tcmalloc_path(tmp_path)
    assert found is not None
    assert found.name == "libtcmalloc_minimal.so.4"
    assert "tcmalloc" in allocator_check(tmp_path).detail


def test_processor_features_are_read(tmp_path: Path) -> None:
    root = make_root(tmp_path, {"proc/cpuinfo": "processor : 0\nflags\t\t: fpu avx2 amx_bf16\n"})
    assert cpu_features(root) == {"fpu", "avx2", "amx_bf16"}


def test_the_doctor_mends_what_it_finds(tmp_path: Path) -> None:
    results = run_doctor(cache_dir=tmp_path / "new" / "cache", model=None, extra=[bad("ray", "down", "start it")])
    assert all(result.fix for result in results if result.status is not Status.OK)
    assert "longfold models pull" in {result.name: result.fix for result in results}["model"]
    assert results[-1].name == "ray"
    assert not (tmp_path / "new").exists(), "it changes nothing"


def test_the_doctor_predicts_how_many_contexts_fit(tmp_path: Path) -> None:
    results = run_doctor(cache_dir=tmp_path, model=make_model(tmp_path / "m"))
    assert {"KV cache", "number format"} <= {result.name for result in results}


def test_the_worst_finding_decides() -> None:
    assert worst([]) is Status.OK
    assert worst([ok("a", ""), bad("b", "", ""), warn("c", "", "")]) is Status.BAD


def h100(index: int) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100",
        memory_bytes=80 << 30,
        free_bytes=79 << 30,
        compute_capability=9.0,
    )


def gpu_lines(cache_dir: Path) -> dict[str, CheckResult]:
    return {result.name: result for result in machine_checks(cache_dir, None)}


def test_a_gpu_is_described_with_what_an_engine_needs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: (h100(0), h100(1)))
    monkeypatch.setattr(machine, "engine_build", lambda: "gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CC", "no-such-compiler")
    lines = gpu_lines(tmp_path)
    assert lines["GPU"].detail == "NVIDIA H100 (80 GiB, 79 free, compute capability 9.0); 1 more are hidden"
    assert lines["compiler"].status is Status.BAD
    assert "gcc" in lines["compiler"].fix
    assert lines["engine cache"].status is Status.OK
    assert "bfloat16" in lines["number format"].detail


@pytest.mark.parametrize(
    ("build", "visible", "told"),
    [
        ("cpu", "0", "the installed vLLM is the build for processors, though there is a NVIDIA H100"),
        ("gpu", "", "CUDA_VISIBLE_DEVICES= hides all GPUs"),
    ],
)
def test_a_gpu_that_is_not_used_is_told_with_the_reason(
    build: str, visible: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: (h100(0),))
    monkeypatch.setattr(machine, "engine_build", lambda: build)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    line = gpu_lines(tmp_path)["GPU"]
    assert line.status is Status.WARN
    assert line.detail.startswith(told)
    assert "LONGFOLD_DEVICE=cpu" in line.fix
