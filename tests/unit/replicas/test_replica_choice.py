"""Routing and memory: what needs no replica to be checked."""

from __future__ import annotations

import pytest

from pipeline.errors import OutOfMemory
from serving.replicas.kv_cache import SHARE, USEFUL_TOKENS, fit_kv_cache
from serving.replicas.router import replica_of
from tests.factories import make_profile

REPLICAS = ("a", "b", "c", "d")


def test_every_lane_has_a_replica_of_its_own() -> None:
    assert {replica_of(lane, REPLICAS) for lane in range(4)} == set(REPLICAS)
    assert replica_of(5, REPLICAS) == replica_of(1, REPLICAS), "a dispatcher that knows of more shares them"


@pytest.mark.parametrize("lost", REPLICAS)
def test_while_a_replica_is_away_most_lanes_keep_theirs(lost: str) -> None:
    left = tuple(name for name in REPLICAS if name != lost)
    kept = [lane for lane in range(3) if replica_of(lane, REPLICAS) == replica_of(lane, left)]
    moved = [lane for lane in range(3) if lane not in kept and replica_of(lane, REPLICAS) != lost]
    assert len(moved) <= 1
    assert {replica_of(lane, left) for lane in range(3)} == set(left)


def test_the_kv_cache_takes_what_is_free_up_to_what_is_useful() -> None:
    model = make_profile(weights_bytes=3 << 30)
    assert fit_kv_cache(model, free_bytes=8 << 30) == int((2 << 30) * SHARE)
    assert fit_kv_cache(model, free_bytes=64 << 30) == USEFUL_TOKENS * 28_672


def test_a_model_that_does_not_fit_is_refused_with_the_figures() -> None:
    with pytest.raises(OutOfMemory, match=r"needs 6\.2 GiB .* 4\.0 GiB are free"):
        fit_kv_cache(make_profile(weights_bytes=3 << 30), free_bytes=4 << 30)
