"""A served model for the suites: the same placement, cluster and dispatcher that `longfold ask` uses."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
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

SCRIPTED = "scripted"
"""A model name for trying the suites themselves: no engine, computed outputs, meaningless scores."""


@dataclass(frozen=True, kw_only=True)
class BenchModel:
    """What can be known of a model before it is served."""

    name: str
    fingerprint: str
    context_tokens: int
    chunk_tokens: int
    gate: GateSettings
    calibration: Calibration
    path: Path | None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return byte_tokenizer() if self.path is None else Tokenizer.from_directory(self.path)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "context_tokens": self.context_tokens,
            "chunk_tokens": self.chunk_tokens,
        }

    def resources(self, dispatcher: Dispatcher) -> Resources:
        return Resources(
            tokenizer=self.tokenizer,
            budget=TokenBudget(self.context_tokens),
            dispatcher=dispatcher,
            chunk_tokens=self.chunk_tokens,
            gate=self.gate,
            calibration=self.calibration,
        )


def find_bench_model(name: str, say: Callable[[str], None]) -> BenchModel:
    """Bring the model if it is not there. An empty name is the default model's."""
    if name == SCRIPTED:
        return BenchModel(
            name=SCRIPTED, fingerprint=SCRIPTED, context_tokens=32_768, chunk_tokens=6_000,
            gate=GateSettings(enabled=True), calibration=Calibration(), path=None,
        )  # fmt: skip
    from serving.models.model_profile import load_profile
    from serving.models.pull_model import pull_model
    from serving.models.read_catalogue import default_model
    from serving.settings import load_settings

    settings = load_settings(model=name or None)
    directory = pull_model(settings.model or default_model(), cache_dir=settings.cache_dir, report=say)
    profile = load_profile(directory, context_tokens=settings.context_tokens)
    return BenchModel(
        name=profile.name,
        fingerprint=profile.fingerprint[:16],
        context_tokens=profile.context_tokens,
        chunk_tokens=profile.chunk_tokens or 2_000,
        gate=GateSettings(**asdict(profile.gate)) if profile.gate else GateSettings(),
        calibration=replace(Calibration(), **asdict(profile.calibration)) if profile.calibration else Calibration(),
        path=profile.path,
    )


@asynccontextmanager
async def serve_model(
    model: BenchModel, say: Callable[[str], None], journal: Path, kv_cache_bytes: int | None = None
) -> AsyncIterator[Served]:
    """Start a cluster of our own with one replica, and end it. `journal` holds completed calls across runs."""
    kept = Journal(journal)
    try:
        if model.path is None:
            dispatcher: Dispatcher = InlineDispatcher(ScriptedModel(script=seeded_script()))
            yield _served(model, dispatcher, kept)
            return
        from pipeline.dispatch.ray_tasks import RayTaskDispatcher
        from serving import cluster
        from serving.replicas.placement import place_vllm

        placement = place_vllm(str(model.path), context_tokens=model.context_tokens, kv_cache_bytes=kv_cache_bytes)
        with tempfile.TemporaryDirectory(prefix="lf") as folder:
            running = cluster.start(placement, folder=Path(folder), report=say)
            try:
                yield _served(model, RayTaskDispatcher(running.replica_address, replicas=running.replicas), kept)
            finally:
                running.stop()
    finally:
        kept.close()


def _served(model: BenchModel, dispatcher: Dispatcher, journal: Journal) -> Served:
    return Served(
        resources=model.resources(dispatcher),
        remembering=model.resources(JournaledDispatcher(dispatcher, journal, model.fingerprint)),
    )


def byte_tokenizer() -> Tokenizer:
    """One token per byte: a tokenizer that needs no model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE(vocab={character: n for n, character in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return Tokenizer(json.dumps(json.loads(raw.to_str())), None, {})
