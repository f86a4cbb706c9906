"""Hosts a model that has no life cycle of its own: the scripted model, with a script that a test names."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

from pipeline.llm.model import Call, Completion, Model
from pipeline.llm.scripted import ScriptedModel
from serving.replicas.hosting import EngineProgress


def host_scripted(options: Mapping[str, Any]) -> HostedScripted:
    """Host a scripted model. `options["script"]`, "module:function", makes its script from the other options."""
    arguments = dict(options)
    module, _, name = str(arguments.pop("script")).partition(":")
    return HostedScripted(ScriptedModel(getattr(importlib.import_module(module), name)(**arguments)))


class HostedScripted:
    """Counts what passes through a `Model`; alive as long as the process."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._running = 0
        self._prompt_tokens = self._output_tokens = 0
        self._last_progress = 0.0

    capacity = 16

    def start(self) -> None: ...

    async def complete(self, call: Call) -> Completion:
        if not self._running:
            self._last_progress = time.monotonic()
        self._running += 1
        try:
            completion = await self._model.complete(call)
        finally:
            self._running -= 1
        self._last_progress = time.monotonic()
        self._prompt_tokens += completion.usage.prompt_tokens
        self._output_tokens += completion.usage.output_tokens
        return completion

    def progress(self) -> EngineProgress:
        return EngineProgress(
            running=self._running,
            waiting=0,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=0,
            output_tokens=self._output_tokens,
            kv_usage=0.0,
            idle_s=time.monotonic() - self._last_progress if self._running else 0.0,
        )

    def dead_reason(self) -> str | None:
        return None

    def stop(self) -> None: ...
