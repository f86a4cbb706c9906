"""Where a model goes, and what is refused before anything starts: on stand-in GPUs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import OutOfMemory, SettingInvalid
from serving.machine import Gpu, visible_gpus
from serving.models.profile import Geometry
from serving.replicas.placement import (
    ENGINE_CACHES,
    Placement,
    common_environment,
    place_on_nodes,
    place_vllm,
    usable_share,
)
from serving.session import check_served
from serving.settings import Settings
from tests.factories import make_profile

GIB = 1 << 30


def gpu(index: int, *, total_gib: int = 80, free_gib: int | None = None) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}abc",
        name="H100",
        memory_bytes=total_gib * GIB,
        free_bytes=(total_gib if free_gib is None else free_gib) * GIB,
        compute_capability=9.0,
    )


EIGHT = [gpu(index) for index in range(8)]
MODEL = make_profile(
    weights_bytes=16 * GIB,
    name="some-8b",
    geometry=Geometry(layers=32, heads=32, kv_heads=8, head_dim=128, stored_bytes=2, window_tokens=131_072),
)


def options(placement: Placement) -> dict[str, object]:
    return dict(placement.spec.options)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2", [2]),
        ("3, 1", [3, 1]),
        ("GPU-2abc,0", [2, 0]),
        ("GPU-1", [1]),
        ("0,9,1", [0]),
        ("0,0", [0]),
    ],
)
def test_only_the_gpus_that_cuda_would_see_are_counted(variable: str | None, expected: list[int]) -> None:
    assert [one.index for one in visible_gpus(EIGHT[:4], variable)] == expected


def test_a_slice_of_a_gpu_is_a_device() -> None:
    [one, other] = visible_gpus(EIGHT[:1], "MIG-5c89,MIG-77aa")
    assert (one.uuid, one.compute_capability, one.memory_bytes) == ("MIG-5c89", 9.0, 0)
    assert place_vllm(MODEL, devices=[one, other]).replicas == 2


def test_every_gpu_gets_a_replica_or_every_group_of_them() -> None:
    alone, pairs = place_vllm(MODEL, devices=EIGHT), place_vllm(MODEL, devices=EIGHT, tensor_parallel=2)
    assert (alone.replicas, alone.num_gpus) == (8, 1)
    assert (pairs.replicas, pairs.num_gpus) == (4, 2)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"replicas": 20}, "20 replicas need 20 GPUs, and 8 can be used here"),
        ({"tensor_parallel": 16}, "1 replica of 16 GPUs each need 16 GPUs"),
        ({"replicas": 3, "tensor_parallel": 4}, "3 replicas of 4 GPUs each need 12 GPUs"),
        ({"tensor_parallel": 3}, "32 attention heads, which 3 GPUs cannot share evenly. .* may be 1, 2, 4, 8 here"),
    ],
)
def test_what_the_gpus_cannot_hold_is_refused_in_a_sentence(wanted: dict[str, int], told: str) -> None:
    with pytest.raises(SettingInvalid, match=told):
        place_vllm(MODEL, devices=EIGHT, **wanted)


def test_weights_that_do_not_fit_are_refused_with_the_figures_and_fit_when_spread() -> None:
    large = replace(MODEL, weights_bytes=140 * GIB)
    with pytest.raises(OutOfMemory, match=r"needs 143\.0 GiB of each GPU .* 72\.0 GiB can be used \(H100: 80 of 80"):
        place_vllm(large, devices=EIGHT)
    assert place_vllm(large, devices=EIGHT, tensor_parallel=4).replicas == 2


def test_a_gpu_that_others_use_too_is_used_as_far_as_it_is_free() -> None:
    assert usable_share(EIGHT) == 0.9
    assert usable_share([gpu(0), gpu(1, free_gib=40)]) == 0.48
    assert options(place_vllm(MODEL, devices=[gpu(0, free_gib=40)]))["memory_share"] == 0.48
    assert options(place_vllm(MODEL, devices=[gpu(0)], memory_share=0.7))["memory_share"] == 0.7
    with pytest.raises(OutOfMemory, match="4 of 80 GiB free"):
        place_vllm(MODEL, devices=[gpu(0, free_gib=4)])


def test_the_kv_cache_of_a_replica_is_shared_out_to_its_gpus() -> None:
    placed = place_vllm(MODEL, devices=EIGHT, tensor_parallel=2, kv_cache_bytes=10 * GIB)
    assert options(placed)["kv_cache_bytes"] == 5 * GIB


def test_large_gpus_take_more_at_once() -> None:
    large, small = (options(place_vllm(MODEL, devices=[gpu(0, total_gib=gib)])) for gib in (80, 24))
    assert (large["max_sequences"], large["step_tokens"]) == (512, 16_384)
    assert (small["max_sequences"], small["step_tokens"]) == (256, 8192)


def test_tensor_parallel_without_a_gpu_is_refused_with_the_reason() -> None:
    with pytest.raises(SettingInvalid, match="LONGFOLD_TENSOR_PARALLEL is 2, and there is no GPU to use"):
        place_vllm(MODEL, devices=[], tensor_parallel=2)


def test_engines_keep_what_they_compile_in_the_cache_folder_and_find_what_we_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/elsewhere/vllm", "/more"]))
    environment = common_environment(tmp_path)
    assert {environment[variable] for variable in ENGINE_CACHES} == {
        str(tmp_path / "engine" / folder) for folder in ("vllm", "triton", "inductor", "flashinfer")
    }
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == ["/elsewhere/vllm", "/more"]
    assert place_vllm(MODEL, devices=EIGHT, cache_dir=tmp_path).environment["VLLM_CACHE_ROOT"].startswith(str(tmp_path))


def test_a_cluster_that_serves_another_model_is_not_joined() -> None:
    check_served(MODEL, [{"model": "some-8b", "fingerprint": "model-1"}, {"model": "", "fingerprint": ""}])
    with pytest.raises(SettingInvalid, match="The cluster serves other-7b, and some-8b in bfloat16 was asked for"):
        check_served(MODEL, [{"model": "other-7b", "fingerprint": "model-2"}])
    placed = place_vllm(MODEL, devices=EIGHT).spec
    assert (placed.model, placed.fingerprint) == ("some-8b", "model-1")


def test_on_other_nodes_a_replica_takes_a_group_of_gpus_of_one_node() -> None:
    settings = Settings(tensor_parallel=2)
    assert place_on_nodes(settings, MODEL, [4, 3, 0]).replicas == 3
    assert options(place_on_nodes(settings, MODEL, [2]))["memory_share"] == 0.9
    with pytest.raises(SettingInvalid, match="the nodes have 1, 1: a replica's GPUs must be on one node"):
        place_on_nodes(settings, MODEL, [1, 1])
    with pytest.raises(SettingInvalid, match="9 replicas of 1 GPUs each were asked for"):
        place_on_nodes(Settings(replicas=9), MODEL, [4, 4])
    assert place_on_nodes(Settings(replicas=2, kv_cache_gib=1), replace(MODEL, weights_bytes=1), [0, 0]).num_gpus == 0
