"""Routing and memory: what needs no replica to be checked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.errors import OutOfMemory
from pipeline.findings.confidence import Calibration, GateSettings
from serving.models.dtype import Dtype
from serving.models.profile import Geometry, ModelProfile
from serving.replicas.kv_cache import SHARE, USEFUL_TOKENS, fit_kv_cache
from serving.replicas.router import choose, preferred

REPLICAS = ("a", "b", "c", "d")


def test_a_chunk_has_one_home_and_chunks_are_spread() -> None:
    homes = Counter(preferred(f"chunk-{n}", REPLICAS)[0] for n in range(400))
    assert set(homes) == set(REPLICAS)
    assert min(homes.values()) > 50
    assert preferred("chunk-1", REPLICAS) == preferred("chunk-1", REPLICAS[::-1])


def test_a_lost_replica_moves_only_its_own_chunks() -> None:
    for n in range(100):
        before = preferred(f"chunk-{n}", REPLICAS)
        assert preferred(f"chunk-{n}", [r for r in REPLICAS if r != "a"]) == [r for r in before if r != "a"]


def test_a_call_leaves_its_home_only_when_that_is_much_busier() -> None:
    home = preferred("chunk-1", REPLICAS)[0]
    assert choose("chunk-1", lambda r: 8 if r == home else 0, REPLICAS)[0] == home
    assert choose("chunk-1", lambda r: 9 if r == home else 0, REPLICAS)[0] != home
    assert choose("chunk-1", lambda r: 39 if r == home else 20, REPLICAS)[0] == home


def test_a_call_about_no_chunk_goes_to_the_least_loaded() -> None:
    assert choose("", {"a": 3, "b": 1, "c": 2, "d": 9}.__getitem__, REPLICAS)[0] == "b"


def profile(*, weights_bytes: int) -> ModelProfile:
    return ModelProfile(
        path=Path("model"),
        name="model",
        context_tokens=8192,
        chunk_tokens=None,
        geometry=Geometry(layers=28, kv_heads=2, head_dim=128, stored_bytes=2, window_tokens=32_768),
        dtype=Dtype(name="bfloat16", reason="given"),
        weights_bytes=weights_bytes,
        gate=GateSettings(),
        calibration=Calibration(),
        fingerprint="model-1",
    )


def test_the_kv_cache_takes_what_is_free_up_to_what_is_useful() -> None:
    model = profile(weights_bytes=3 << 30)
    assert fit_kv_cache(model, free_bytes=8 << 30) == int((2 << 30) * SHARE)
    assert fit_kv_cache(model, free_bytes=64 << 30) == USEFUL_TOKENS * 28_672


def test_a_model_that_does_not_fit_is_refused_with_the_figures() -> None:
    with pytest.raises(OutOfMemory, match=r"needs 6\.2 GiB .* 4\.0 GiB are free"):
        fit_kv_cache(profile(weights_bytes=3 << 30), free_bytes=4 << 30)
