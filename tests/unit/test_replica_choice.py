"""Routing and memory: what needs no replica to be checked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pipeline.errors import ModelIncomplete, OutOfMemory
from serving.replicas.kv_cache import SHARE, USEFUL_TOKENS, fit_kv_cache, kv_bytes_per_token
from serving.replicas.router import choose, preferred

REPLICAS = ("a", "b", "c", "d")
CONFIG = {"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_size": 1536}


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


def test_kv_bytes_follow_the_grouped_heads() -> None:
    assert kv_bytes_per_token(CONFIG) == 28_672


def model_folder(path: Path, *, weight_bytes: int) -> str:
    (path / "config.json").write_text(json.dumps(CONFIG))
    with (path / "model.safetensors").open("wb") as file:
        file.truncate(weight_bytes)  # sparse: takes no space
    return str(path)


def test_the_kv_cache_takes_what_is_free_up_to_what_is_useful(tmp_path: Path) -> None:
    model = model_folder(tmp_path, weight_bytes=3 << 30)
    some = fit_kv_cache(model, free_bytes=8 << 30, context_tokens=8192)
    assert some == int((2 << 30) * SHARE)
    assert fit_kv_cache(model, free_bytes=64 << 30, context_tokens=8192) == USEFUL_TOKENS * 28_672


def test_a_model_that_does_not_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    model = model_folder(tmp_path, weight_bytes=3 << 30)
    with pytest.raises(OutOfMemory, match=r"needs 6\.2 GiB .* 4\.0 GiB are free"):
        fit_kv_cache(model, free_bytes=4 << 30, context_tokens=8192)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelIncomplete, match="cannot be read"):
        fit_kv_cache(str(tmp_path), free_bytes=4 << 30, context_tokens=8192)
