"""What a replica needs from the model it hosts, beyond `complete`: a life, and signs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pipeline.llm.model import Call, Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgress:
    """Counters of one engine since its start, taken at one moment."""

    running: int
    """Calls in the engine: being computed or waiting in its queue."""
    waiting: int
    """The part of `running` that waits in the engine's queue."""
    prompt_tokens: int
    """Of the prompts that were taken into the engine, cached ones included."""
    cached_tokens: int
    output_tokens: int
    kv_usage: float
    """Share of the KV cache that running calls hold, 0 to 1."""
    idle_s: float
    """Seconds since the engine last produced something; 0 while nothing runs. What finds a hung engine."""


class HostedModel(Protocol):
    """A `Model` with a life cycle, which a replica can watch."""

    def start(self) -> None:
        """Load; return when calls can be made. Raises `LongfoldError` with the engine's own reason."""
        ...

    @property
    def capacity(self) -> int:
        """How many calls are computed at once."""
        ...

    async def complete(self, call: Call) -> Completion: ...

    def progress(self) -> EngineProgress: ...

    def dead_reason(self) -> str | None:
        """Why the engine can never complete a call again; None while it can."""
        ...

    def stop(self) -> None: ...
