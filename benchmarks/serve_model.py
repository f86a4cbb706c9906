"""A served model for the suites: reached as `longfold ask` reaches it, a cluster that is up included."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers

from benchmarks.bench import Served
from pipeline.calibrate import Calibration
from pipeline.dispatch import Dispatcher
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.gate_chunks import GateSettings
from pipeline.journal import Journal, JournaledDispatcher
from pipeline.run import Resources
from pipeline.scripted_model import ScriptedModel, seeded_script
from pipeline.token_budget import TokenBudget
from pipeline.tokenizer import Tokenizer
from serving.session import OpenModel, bring_model, open_session, place_model
from serving.settings import Settings

SCRIPTED = "scripted"
"""A model name for trying the suites themselves: no engine, computed outputs, meaningless scores."""

Say = Callable[[str], None]


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

    def describe(self) -> dict[str, Any]:
        resources = self.resources(_scripted())
        return {
            "name": self.name,
            "fingerprint": self.fingerprint[:16],
            "context_tokens": resources.budget.context_tokens,
            "chunk_tokens": resources.chunk_tokens,
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
    """Bring the model if it is not there."""
    return BenchModel(opened=None if name == SCRIPTED else bring_model(settings, say), settings=settings)


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
    elif kv_cache_bytes is None:
        with open_session(model.settings, model.opened, say) as session:
            yield session.dispatcher
    else:
        with _own_cluster(model.opened, model.settings, say, kv_cache_bytes) as dispatcher:
            yield dispatcher


@contextmanager
def _own_cluster(opened: OpenModel, settings: Settings, say: Say, kv_cache_bytes: int) -> Iterator[Dispatcher]:
    from pipeline.dispatch.ray_tasks import RayTaskDispatcher
    from serving import cluster

    sized = settings.model_copy(update={"kv_cache_gib": kv_cache_bytes / 2**30})
    with tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder:
        running = cluster.start(
            place_model(sized, opened.profile), folder=Path(folder), report=say, auth=settings.ray_auth
        )
        try:
            yield RayTaskDispatcher(running.replica_address, replicas=running.replicas)
        finally:
            running.stop()


def _scripted() -> Dispatcher:
    """The scripted model: its outputs are computed from the calls."""
    return InlineDispatcher(ScriptedModel(script=seeded_script()))


def byte_tokenizer() -> Tokenizer:
    """One token per byte: a tokenizer that needs no model."""
    return Tokenizer(byte_tokenizer_json(), None, {})


def byte_tokenizer_json(control: Sequence[str] = ()) -> str:
    """As it stands in a model's directory, with a token for each of `control`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE(vocab={character: n for n, character in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([*control])
    return str(raw.to_str())
