"""vLLM alone in a process of its own, with the environment that a replica gets; asleep until asked.

While it waits, it blocks on a pipe and its compute threads wait passively, so it takes no time from the other side.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

from pipeline.errors import ReplicaUnavailable
from pipeline.model import Call, Usage
from serving.replicas.placement import Placement
from serving.replicas.vllm_model import BareEngine, VllmSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTiming:
    """Taken inside the process, so the pipe is not in it."""

    seconds: float
    usage: Usage


class BareProcess:
    """Start with the options of a placement; `stop` when done."""

    def __init__(self, placement: Placement) -> None:
        """Return when the engine is loaded. Raises ReplicaUnavailable with its last words."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, dict(placement.spec.options)), daemon=True)
        with _environment(placement.environment):
            self._process.start()
        theirs.close()
        self._receive()

    @property
    def pid(self) -> int:
        return cast("int", self._process.pid)

    def generate(self, calls: Sequence[Call]) -> BareTiming:
        self._pipe.send(list(calls))
        timing: BareTiming = self._receive()
        return timing

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise ReplicaUnavailable("The bare engine's process ended.") from error
        if isinstance(answer, str) and answer:
            raise ReplicaUnavailable(f"The bare engine failed: {answer}")
        return answer


def _serve(pipe: Connection, options: Mapping[str, Any]) -> None:
    """Runs in the process until the pipe is closed."""
    try:
        engine = BareEngine(VllmSettings(**options))
        pipe.send("")
        while True:
            calls = pipe.recv()
            started = time.monotonic()
            usages = engine.generate(calls)
            pipe.send(BareTiming(seconds=time.monotonic() - started, usage=sum(usages, Usage())))
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001  the process's boundary: told to the other side
        pipe.send(f"{type(error).__name__}: {error}")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """A process inherits what stands here while it is started; allocator and threads read it before Python runs."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
