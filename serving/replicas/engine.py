"""The Serve deployment: one replica hosts one model, whatever engine is behind it.

A replica is ready when it has generated something, and healthy while its engine makes progress: Ray Serve asks, and
replaces a replica that cannot answer. An engine that is dead or stuck cannot be mended from inside, so the replica
ends its own process; its callers see that at once and send their calls again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipeline.dispatch.retry import as_failure
from pipeline.errors import InternalError, LongfoldError, UnknownName
from pipeline.llm.model import Call, EncodedPrompt, News, Outcome, Sampling, Stage
from serving.replicas.hosted_scripted import host_scripted
from serving.replicas.hosting import EngineProgress, HostedModel
from serving.replicas.vllm_engine import VllmModel, VllmSettings

logger = logging.getLogger(__name__)

RATE_WINDOW_S = 30.0
TEXT_EVERY_S = 0.1
"""At most so often the text of a call is streamed while it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Which model a replica hosts, and when it counts as stuck. Travels to the replica."""

    engine: str
    """A name in `ENGINES`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of that engine: for vllm the fields of `VllmSettings`."""
    model: str = ""
    """Its name, for those who join the cluster."""
    fingerprint: str = ""
    """Of the model as it is served (`ModelProfile.fingerprint`)."""
    stall_s: float = 600.0
    """Seconds without any progress while calls run. One step of a 1.5B model takes 10 s on two idle cores, and on
    cores that thirty other programs want, minutes."""


ENGINES: dict[str, Callable[[Mapping[str, Any]], HostedModel]] = {
    "vllm": lambda options: VllmModel(VllmSettings(**options)),
    "scripted": host_scripted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStats:
    """One replica at one moment."""

    model: str
    fingerprint: str
    pid: int
    node: str
    uptime_s: float
    tokens_per_s: float
    """Prompt and output tokens, over the last half minute or since it was last asked."""
    capacity: int
    """How many calls the engine computes at once."""
    progress: EngineProgress


class Engine:
    """What Serve runs in each replica."""

    def __init__(self, spec: EngineSpec) -> None:
        if spec.engine not in ENGINES:
            raise UnknownName(f"No engine is called {spec.engine!r}; known: {', '.join(sorted(ENGINES))}.")
        self._spec = spec
        self._proven = False
        self._started = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque([(self._started, 0)])
        self._model = ENGINES[spec.engine](spec.options)
        self._model.start()

    async def complete(self, calls: Sequence[Call], streamed: Collection[int] = ()) -> AsyncIterator[list[News]]:
        """Complete calls side by side; yields (place, outcome) of those that have ended since the last time.

        Of the places in `streamed` also the whole text so far, while it is written. A failure is a value: an exception
        would cost a traceback per call.
        """
        news: dict[int, str | Outcome] = {}
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def complete_one(place: int, call: Call) -> None:
            def on_text(text: str) -> None:
                if place not in news:
                    loop.call_later(TEXT_EVERY_S, arrived.set)
                news[place] = text

            news[place] = await self._complete(replace(call, on_text=on_text if place in streamed else None))
            arrived.set()

        running = [loop.create_task(complete_one(place, call)) for place, call in enumerate(calls)]
        left = len(running)
        try:
            while left:
                await arrived.wait()
                arrived.clear()
                if news:
                    sent = list(news.items())
                    news.clear()
                    left -= sum(not isinstance(what, str) for _, what in sent)
                    yield sent
        finally:
            for task in running:
                task.cancel()

    async def _complete(self, call: Call) -> Outcome:
        try:
            return await self._model.complete(call)
        except LongfoldError as error:
            if (reason := self._model.dead_reason()) is not None:
                _end_process(f"the engine died: {reason}")
            return as_failure(error)
        except Exception as error:
            logger.exception("replica.call_failed")
            return as_failure(InternalError(f"The replica raised {type(error).__name__}: {error}"))

    async def check_health(self) -> None:
        """Called by Serve: once before the replica counts as ready, then periodically."""
        if (reason := self._model.dead_reason()) is not None:
            _end_process(f"the engine died: {reason}")
        if not self._proven:
            await self._model.complete(_canary())
            self._proven = True
        progress = self._model.progress()
        if progress.idle_s > self._spec.stall_s:
            _end_process(f"no progress for {progress.idle_s:.0f} s with {progress.running} calls running")
        self._rate(progress)

    async def stats(self) -> ReplicaStats:
        progress = self._model.progress()
        return ReplicaStats(
            model=self._spec.model,
            fingerprint=self._spec.fingerprint,
            pid=os.getpid(),
            node=_node(),
            uptime_s=time.monotonic() - self._started,
            tokens_per_s=self._rate(progress),
            capacity=self._model.capacity,
            progress=progress,
        )

    async def record_routing_stats(self) -> dict[str, Any]:
        """Serve's own hook, and how `cluster.status` reaches every replica rather than any."""
        return asdict(await self.stats())

    def __del__(self) -> None:
        """Serve calls this when the replica stops, after its calls have ended or their time is over."""
        if hasattr(self, "_model"):
            self._model.stop()

    def _rate(self, progress: EngineProgress) -> float:
        now = time.monotonic()
        self._samples.append((now, progress.prompt_tokens - progress.cached_tokens + progress.output_tokens))
        while len(self._samples) > 2 and now - self._samples[1][0] > RATE_WINDOW_S:
            self._samples.popleft()
        (before, tokens_before), (after, tokens_after) = self._samples[0], self._samples[-1]
        return (tokens_after - tokens_before) / max(after - before, 1e-3)


def _canary() -> Call:
    """A call that every model can complete."""
    prompt = EncodedPrompt(token_ids=array("I", range(1, 17)), shared_prefix_tokens=0)
    return Call(prompt=prompt, sampling=Sampling(max_output_tokens=2), stage=Stage.DIRECT)


def _end_process(reason: str) -> None:
    logger.error("replica.ended reason=%s", reason)
    os._exit(1)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
