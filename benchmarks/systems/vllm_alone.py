"""vLLM by itself, on the same model and sizes as a replica: what our own way to it is measured against."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import ReplicaUnavailable
from pipeline.llm.model import Call, Completion, Usage
from serving.replicas.engine_meter import EngineMeter
from serving.replicas.vllm_engine import VllmModel, VllmSettings, open_offline, open_to_step


class BareEngine:
    """vLLM's offline `generate`."""

    def __init__(self, settings: VllmSettings) -> None:
        self._llm = open_offline(settings)
        self._model = VllmModel(settings)

    def generate(self, calls: Sequence[Call]) -> list[Usage]:
        """Complete all calls in one go; calls with `choices` are not for this."""
        prompts: list[Any] = [{"prompt_token_ids": call.prompt.token_ids.tolist()} for call in calls]
        params = [self._model.params(call.sampling) for call in calls]
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        return [self._model.completion(o, c.sampling, seconds=0.0).usage for o, c in zip(outputs, calls, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCompletion:
    """A completion and what could be seen while it was made."""

    completion: Completion
    first_token_s: float
    kv_tokens: int
    """For which the KV cache has room."""
    kv_usage: float
    """The most of it that the call held at a time, 0 to 1."""


class WatchedEngine:
    """vLLM's own decoding, first come first served, watched step by step."""

    def __init__(self, settings: VllmSettings) -> None:
        self._meter = EngineMeter()
        self._llm = open_to_step(settings, self._meter)
        self._model = VllmModel(settings)
        self._ids = itertools.count()

    def complete(self, call: Call) -> WatchedCompletion:
        """One call by itself; not for calls with `choices`."""
        params = self._model.params(call.sampling, cumulative=True)
        started, first_token_s, kv_usage, last = time.monotonic(), 0.0, 0.0, None
        self._llm.add_request(f"call-{next(self._ids)}", {"prompt_token_ids": call.prompt.token_ids.tolist()}, params)
        while self._llm.has_unfinished_requests():
            for output in self._llm.step():
                if output.outputs[0].token_ids and not first_token_s:
                    first_token_s = time.monotonic() - started
                last = output
            kv_usage = max(kv_usage, self._meter.progress(1).kv_usage)
        if last is None:
            raise ReplicaUnavailable("The engine ended the call without an output.")
        cache = self._llm.vllm_config.cache_config
        return WatchedCompletion(
            completion=self._model.completion(last, call.sampling, seconds=time.monotonic() - started),
            first_token_s=first_token_s,
            kv_tokens=cache.num_gpu_blocks * cache.block_size,
            kv_usage=kv_usage,
        )
