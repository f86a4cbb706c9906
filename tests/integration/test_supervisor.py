"""The supervisor: a runner that dies or hangs is replaced, and what it held is free at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from serving.jobs.supervisor import Supervisor

_CHILD = """
import os, sys, time
pipe = int(sys.argv[sys.argv.index("--beat-fd") + 1])
while True:
    os.write(pipe, b"runner-%d\\n" % os.getpid())
    {then}
    time.sleep(0.05)
"""


async def until(condition: Callable[[], bool], *, within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def supervised(then: str = "", *, silence_s: float = 1.0) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    buried: list[str] = []

    async def bury(runner_id: str) -> None:
        buried.append(runner_id)

    command = [sys.executable, "-c", _CHILD.format(then=then)]
    supervisor = Supervisor(command, bury=bury, pauses_s=(0.05,), silence_s=silence_s)
    keeping = asyncio.create_task(supervisor.keep())
    try:
        yield supervisor, buried
    finally:
        await supervisor.stop(within_s=1.0)
        await keeping


async def test_a_child_that_hangs_is_killed_buried_and_replaced() -> None:
    async with supervised(silence_s=1.0) as (supervisor, buried):
        await until(lambda: supervisor.runner_id != "")
        assert supervisor.trouble == ""
        first = supervisor.pid
        assert first is not None
        assert supervisor.runner_id == f"runner-{first}"
        began_s = time.monotonic()
        os.kill(first, signal.SIGSTOP)
        await until(lambda: supervisor.trouble != "", within_s=5.0)
        await until(lambda: supervisor.pid not in (None, first) and supervisor.runner_id != "")
        assert time.monotonic() - began_s < 10.0
        assert buried == [f"runner-{first}"]
        assert supervisor.trouble == "", "the next one lives"


async def test_a_child_that_beats_is_left_alone_however_long() -> None:
    async with supervised(silence_s=0.5) as (supervisor, buried):
        await until(lambda: supervisor.runner_id != "")
        first = supervisor.pid
        await asyncio.sleep(1.5)
        assert supervisor.pid == first
        assert (supervisor.trouble, buried) == ("", [])


async def test_a_child_that_dies_is_buried_by_the_name_that_it_gave() -> None:
    async with supervised(then="os.kill(os.getpid(), 9)") as (_, buried):
        await until(lambda: len(buried) >= 2)
        assert all(name.startswith("runner-") for name in buried)
        assert len(set(buried)) == len(buried)


async def test_a_child_that_is_killed_at_the_end_is_buried_too() -> None:
    async with supervised(then="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as (supervisor, buried):
        await until(lambda: supervisor.runner_id != "")
        await asyncio.sleep(0.2)
        mine = supervisor.runner_id
    assert buried == [mine]
