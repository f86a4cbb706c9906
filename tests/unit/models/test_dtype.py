"""The number format is that of the hardware: emulated bfloat16 is several times slower than float32."""

from __future__ import annotations

import pytest

from serving.machine import Gpu
from serving.models.dtype import choose_dtype


def gpu(name: str, compute_capability: float) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name=name, memory_bytes=1, free_bytes=1, compute_capability=compute_capability)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"avx2"}, "float32"),
        ({"avx2", "avx512f"}, "float32"),
        ({"avx2", "avx512f", "avx512_bf16"}, "bfloat16"),
        ({"avx2", "avx512f", "amx_bf16"}, "bfloat16"),
        (set(), "float32"),
    ],
)
def test_a_processor_computes_in_bfloat16_only_with_instructions_for_it(features: set[str], expected: str) -> None:
    assert choose_dtype(devices=(), features=frozenset(features)).name == expected


@pytest.mark.parametrize(("capability", "expected"), [(9.0, "bfloat16"), (8.0, "bfloat16"), (7.5, "float16")])
def test_a_gpu_computes_in_bfloat16_from_ampere_on(capability: float, expected: str) -> None:
    assert choose_dtype(devices=[gpu("some GPU", capability)]).name == expected


def test_the_oldest_of_several_gpus_decides() -> None:
    chosen = choose_dtype(devices=[gpu("H100", 9.0), gpu("T4", 7.5)])
    assert chosen.name == "float16"
    assert "T4" in chosen.reason


def test_a_format_that_is_set_is_taken_on_any_machine() -> None:
    assert str(choose_dtype("float16", devices=(), features=frozenset())) == "float16 (as set)"
