"""vLLM in a process of its own, with the environment that a replica gets; asleep until asked.

While it waits, it blocks on a pipe and its compute threads wait passively, so it takes no time from the other side.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from benchmarks.systems.vllm_alone import BareEngine, WatchedCompletion, WatchedEngine
from pipeline.errors import ReplicaUnavailable
from pipeline.llm.model import Call, Usage
from serving.replicas.placement import Placement
from serving.replicas.vllm_engine import VllmSettings

Result = TypeVar("Result")
Work = Callable[[Sequence[Call]], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTiming:
    """Taken inside the process, so the pipe is not in it."""

    seconds: float
    usage: Usage


def load_bare(settings: VllmSettings) -> Work[BareTiming]:
    """vLLM's offline `generate`."""
    engine = BareEngine(settings)

    def work(calls: Sequence[Call]) -> BareTiming:
        started = time.monotonic()
        usages = engine.generate(calls)
        return BareTiming(seconds=time.monotonic() - started, usage=sum(usages, Usage()))

    return work


def load_watched(settings: VllmSettings) -> Work[list[WatchedCompletion]]:
    """One call after another, watched token by token."""
    engine = WatchedEngine(settings)
    return lambda calls: [engine.complete(call) for call in calls]


class EngineProcess(Generic[Result]):
    """Start with the options of a placement and what to load there; `stop` when done."""

    def __init__(self, placement: Placement, load: Callable[[VllmSettings], Work[Result]]) -> None:
        """Return when the engine is loaded. Raises ReplicaUnavailable with its last words."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # No daemon, which could not have the process that vLLM starts for a GPU; it ends when the pipe is closed.
        self._process = context.Process(target=_serve, args=(theirs, load, dict(placement.spec.options)))
        with _environment(placement.environment):
            self._process.start()
        theirs.close()
        try:
            self._receive()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return int(self._process.pid or 0)

    def work(self, calls: Sequence[Call]) -> Result:
        self._pipe.send(list(calls))
        result: Result = self._receive()
        return result

    def stop(self) -> None:
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise ReplicaUnavailable("The engine's process ended.") from error
        if isinstance(answer, str) and answer:
            raise ReplicaUnavailable(f"The engine failed: {answer}")
        return answer


def _serve(pipe: Connection, load: Callable[[VllmSettings], Work[Any]], options: Mapping[str, Any]) -> None:
    """Runs in the process until the pipe is closed."""
    try:
        work = load(VllmSettings(**options))
        pipe.send("")
        while True:
            pipe.send(work(pipe.recv()))
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
