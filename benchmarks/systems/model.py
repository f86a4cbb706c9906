"""A served model for the suites: reached as `longfold ask` reaches it, a cluster that is up included."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.systems.byte_tokenizer import byte_tokenizer
from benchmarks.systems.random_model import RANDOM, make_random_model, with_random_weights
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.errors import CallerError
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Dispatcher
from pipeline.llm.scripted import ScriptedModel, seeded_script
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.strategy import Resources
from serving.replicas.placement import place_model
from serving.session import OpenModel, open_session, resolve_model
from serving.settings import Settings

if TYPE_CHECKING:  # importing Ray takes a second
    from serving.replicas.placement import Placement

SCRIPTED = "scripted"
"""A model name for trying the suites themselves: no engine, computed outputs, meaningless scores."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model that answers, and what a run needs to use it."""

    resources: Resources
    """Without a journal: every call is computed, so times mean something."""
    remembering: Resources
    """Calls that were completed before are answered from the benchmarks' own journal."""


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """What can be known of a model before it is served. `opened` is None for the scripted one."""

    opened: OpenModel | None
    settings: Settings

    @property
    def name(self) -> str:
        return self.opened.profile.name if self.opened else SCRIPTED

    @property
    def fingerprint(self) -> str:
        return self.opened.profile.fingerprint if self.opened else SCRIPTED

    @property
    def context_tokens(self) -> int:
        return self.resources(_scripted()).budget.context_tokens

    @property
    def chunk_tokens(self) -> int:
        """What it reads at a time unless another size is asked for."""
        return self.resources(_scripted()).chunk_tokens

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.opened.tokenizer if self.opened else byte_tokenizer()

    @property
    def random_weights(self) -> bool:
        """Right for speed and memory, useless for quality."""
        return self.name.startswith(RANDOM)

    def place(self, kv_cache_bytes: int | None = None) -> Placement:
        """How this machine serves it; without a size the KV cache takes what is free. Raises CallerError."""
        if self.opened is None:
            raise CallerError("The scripted model has no engine; name a real model.")
        changes = {"kv_cache_gib": kv_cache_bytes / 2**30} if kv_cache_bytes else {}
        placement = place_model(self.settings.model_copy(update=changes), self.opened.profile)
        return with_random_weights(placement) if self.random_weights else placement

    def describe(self) -> dict[str, Any]:
        resources = self.resources(_scripted())
        return {
            "name": self.name,
            "fingerprint": self.fingerprint[:16],
            "dtype": self.opened.profile.dtype.name if self.opened else "",
            "context_tokens": resources.budget.context_tokens,
            "chunk_tokens": resources.chunk_tokens,
            "tasks_without_rationale": list(resources.tasks_without_rationale),
            "gate": asdict(resources.gate),
            "calibration": asdict(resources.calibration),
        }

    def resources(self, dispatcher: Dispatcher) -> Resources:
        if self.opened:
            return self.opened.resources(dispatcher)
        return Resources(
            tokenizer=self.tokenizer,
            budget=TokenBudget(32_768),
            dispatcher=dispatcher,
            chunk_tokens=6_000,
            gate=GateSettings(enabled=True),
            calibration=Calibration(),
        )


def find_bench_model(name: str, settings: Settings, say: Say) -> BenchModel:
    """Bring the model if it is not there; `random/GEOMETRY` is made on the spot."""
    if name.startswith(RANDOM):
        made = make_random_model(name, settings.cache_dir, context_tokens=settings.context_tokens)
        return BenchModel(opened=OpenModel(made), settings=settings)
    return BenchModel(opened=None if name == SCRIPTED else resolve_model(settings, say), settings=settings)


@asynccontextmanager
async def serve_model(model: BenchModel, say: Say, kv_cache_bytes: int | None = None) -> AsyncIterator[Served]:
    """Reach the model, or start it and end it.

    With `kv_cache_bytes` it is always started, with a cache of that size: for comparing engines.
    """
    journal = Journal(model.settings.cache_dir / "benchmark-calls.sqlite")
    try:
        with _dispatcher(model, say, kv_cache_bytes) as dispatcher:
            yield Served(
                resources=model.resources(dispatcher),
                remembering=model.resources(JournaledDispatcher(dispatcher, journal, model.fingerprint)),
            )
    finally:
        journal.close()


@contextmanager
def _dispatcher(model: BenchModel, say: Say, kv_cache_bytes: int | None) -> Iterator[Dispatcher]:
    if model.opened is None:
        yield _scripted()
    elif kv_cache_bytes is None and not model.random_weights:
        with open_session(model.settings, model.opened, say) as session:
            yield session.dispatcher
    else:
        with _own_cluster(model, say, kv_cache_bytes) as dispatcher:
            yield dispatcher


@contextmanager
def _own_cluster(model: BenchModel, say: Say, kv_cache_bytes: int | None) -> Iterator[Dispatcher]:
    from serving.cluster import ray_cluster

    with tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder:
        running = ray_cluster.start(
            model.place(kv_cache_bytes), folder=Path(folder), report=say, auth=model.settings.ray_auth
        )
        try:
            yield running.dispatcher()
        finally:
            running.stop()


def _scripted() -> Dispatcher:
    """The scripted model: its outputs are computed from the calls."""
    return InlineDispatcher(ScriptedModel(script=seeded_script()))
