"""Resources of a process: processor seconds, memory as it goes up and down, and what is in use on the GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil  # type: ignore[import-untyped]

from serving.machine import gpus

SAMPLE_S = 0.05
DEVICE_SAMPLE_S = 0.5


@dataclass(slots=True)
class MemoryWatch:
    """Resident bytes of a process at moments of `time.monotonic`, and those of a kind of its children together."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def max(self) -> int:
        return max((own for _, own, _ in self.samples), default=0)

    @property
    def max_of_children(self) -> int:
        return max((children for *_, children in self.samples), default=0)


@dataclass(slots=True)
class DeviceWatch:
    """Bytes in use on all GPUs together, as NVML reports them; empty without a GPU."""

    samples: list[int] = field(default_factory=list)

    @property
    def max(self) -> int | None:
        return max(self.samples, default=None)


@contextmanager
def watch_devices() -> Iterator[DeviceWatch]:
    """Sample until the context ends, in a thread."""
    watch = DeviceWatch()

    def sample() -> bool:
        found = gpus()
        if found:
            watch.samples.append(sum(gpu.memory_bytes - gpu.free_bytes for gpu in found))
        return bool(found)

    with _sampling(sample, DEVICE_SAMPLE_S):
        yield watch


@contextmanager
def watch_memory(pid: int, child_mark: str = "") -> Iterator[MemoryWatch]:
    """Sample until the context ends, in a thread; of the children, those whose command line names `child_mark`."""
    watch = MemoryWatch()
    process = psutil.Process(pid)

    def sample() -> bool:
        own = process.memory_info().rss
        children = _of_children(process, child_mark) if child_mark else 0
        watch.samples.append((time.monotonic(), own, children))
        return True

    with _sampling(sample, SAMPLE_S):
        yield watch


@contextmanager
def _sampling(sample: Callable[[], bool], every_s: float) -> Iterator[None]:
    """Call `sample` in a thread, until it says that there is no more to see or the context ends."""
    ended = threading.Event()

    def work() -> None:
        while sample() and not ended.wait(every_s):
            pass

    thread = threading.Thread(target=work, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cpu_meter(pid: int) -> Callable[[], float]:
    """Call what is returned for the processor seconds, user and system, since the last call."""
    process = psutil.Process(pid)
    last = _cpu_s(process)

    def used() -> float:
        nonlocal last
        now = _cpu_s(process)
        spent, last = now - last, now
        return spent

    return used


def family_cpu_s(pid: int) -> dict[int, tuple[str, float]]:
    """Of a process and all below it, by pid: its command line, and processor seconds so far, user and system."""
    seconds = {}
    parent = psutil.Process(pid)
    for process in [parent, *parent.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            seconds[int(process.pid)] = " ".join(process.cmdline()), _cpu_s(process)
    return seconds


def find_child(pid: int, mark: str) -> int:
    """The child whose command line names `mark`, waiting a little for it. Raises psutil.NoSuchProcess."""
    for _ in range(100):
        for child in psutil.Process(pid).children():
            if _is_marked(child, mark):
                return int(child.pid)
        time.sleep(0.05)
    raise psutil.NoSuchProcess(pid, mark)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _of_children(process: psutil.Process, mark: str) -> int:
    total = 0
    for child in process.children():
        if _is_marked(child, mark):
            with suppress(psutil.NoSuchProcess):
                total += child.memory_info().rss
    return total


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return False
