"""Finds and ends the processes of a cluster by a mark in their environment, without importing Ray.

Ray's processes have no common parent that outlives them, and change their session; what they inherit and keep is
their environment.
"""

from __future__ import annotations

import os

import psutil  # type: ignore[import-untyped]

MARK = "LONGFOLD_CLUSTER"


def processes(mark: str) -> list[psutil.Process]:
    """Return this user's other processes that were started under `mark`, and theirs.

    Some of Ray's agents overwrite their environment with their title: these are found as children.
    """
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, OSError):
            continue
    return list(found.values())


def end_processes(mark: str, *, wait_s: float = 10.0) -> None:
    """Return when no process of the cluster is left; those that do not go by themselves are killed."""
    psutil.wait_procs(processes(mark), timeout=wait_s)
    while left := processes(mark):
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=wait_s)
