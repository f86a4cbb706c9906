"""Adds up what an engine reports after every step; the time of the last report says that it lives."""

from __future__ import annotations

import time
from typing import Any

from serving.replicas.hosting import EngineProgress


class EngineMeter:
    """Fed by the engine's thread, read by the event loop; each field is written whole."""

    def __init__(self) -> None:
        self._waiting = 0
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0
        self._kv_usage = 0.0
        self._last_step = 0.0
        self._busy_since: float | None = None

    def step(self, scheduler: Any, iteration: Any) -> None:
        self._last_step = time.monotonic()
        if scheduler is not None:
            self._waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self._kv_usage = scheduler.kv_cache_usage
            self._prompt_tokens += scheduler.prefix_cache_stats.queries
            self._cached_tokens += scheduler.prefix_cache_stats.hits
        if iteration is not None:
            self._output_tokens += iteration.num_generation_tokens

    def progress(self, in_flight: int) -> EngineProgress:
        now = time.monotonic()
        if in_flight == 0:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        idle_s = 0.0 if self._busy_since is None else now - max(self._last_step, self._busy_since)
        return EngineProgress(
            running=in_flight,
            waiting=min(self._waiting, in_flight),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            output_tokens=self._output_tokens,
            kv_usage=self._kv_usage if in_flight else 0.0,
            idle_s=idle_s,
        )
