"""An event loop on which waiting takes no time and work takes what it takes.

Its clock is the processor time of its own thread, and where the loop would wait for a timer, the clock jumps there. So
code that runs on it is measured for real, among any number of scripted things that answer after a while, and other
programs on the machine do not show. What it gives to a thread is run in place and counted too.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.errors import InternalError

_PARALLEL = "TOKENIZERS_PARALLELISM"


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`stop` ends it from another thread, with a KeyboardInterrupt."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._shift_s = 0.0
        self._not_counted_s = 0.0
        self._stop = stop
        super().__init__(_Jump(self))

    def time(self) -> float:
        return time.thread_time() + self._shift_s

    def worked_s(self) -> float:
        """Processor time so far, with what was `spend`, without what was `free`; the difference of two is of use."""
        return time.thread_time() + self._not_counted_s

    def spend(self, seconds: float) -> None:
        """Count work that is not really done."""
        self._shift_s += seconds
        self._not_counted_s += seconds

    @contextmanager
    def free(self) -> Iterator[None]:
        """Do not count what is done inside: the work of the simulation itself."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.spend(started - time.thread_time())

    def jump(self, seconds: float) -> None:
        if self._stop is not None and self._stop.is_set():
            raise KeyboardInterrupt
        self._shift_s += seconds

    def run_in_executor(self, _: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001  as an executor: it is raised where the future is awaited
            done.set_exception(error)
        return done


class _Jump(selectors.DefaultSelector):
    """Never waits."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise InternalError("Nothing is left that could happen, and something is still waited for.")
        if timeout > 0:
            self._loop.jump(timeout)
        return super().select(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """How long something took on the simulated clock, and how much of that was work."""

    started_s: float
    """On the loop's clock."""
    seconds: float
    worked_s: float


def simulate(
    make: Callable[[SimulatedLoop], Coroutine[Any, Any, None]], stop: threading.Event | None = None
) -> Simulated:
    """Run what `make` returns on a loop of its own, in this thread, where no other loop may run.

    Tokenizers, which would spread over all cores, keep to this thread meanwhile, so that they are counted.
    """
    loop = SimulatedLoop(stop)
    before = os.environ.get(_PARALLEL)
    os.environ[_PARALLEL] = "false"
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            work = make(loop)
            started_s, worked_s = loop.time(), loop.worked_s()
            runner.run(work)
            return Simulated(started_s=started_s, seconds=loop.time() - started_s, worked_s=loop.worked_s() - worked_s)
    finally:
        os.environ.pop(_PARALLEL)
        if before is not None:
            os.environ[_PARALLEL] = before
