"""The number format a model is served in: what this machine's hardware computes, not what the checkpoint was saved in.

Measured on two AVX2 cores (512 × 1536 × 8960, docs/experiments.md): a processor without bfloat16 instructions
emulates them, and the same product takes six times as long as in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving import machine
from serving.machine import Gpu, cpu_features

DtypeName = Literal["bfloat16", "float16", "float32"]
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
BFLOAT16_CPU_FEATURES = {"avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX", "bf16": "Arm BF16"}
"""Processor flags (as the kernel names them) that mean matrix products in bfloat16."""
BFLOAT16_CAPABILITY = 8.0
"""NVIDIA compute capability from which on a GPU computes in bfloat16 (Ampere)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A number format and why it was chosen."""

    name: DtypeName
    reason: str

    @property
    def bytes(self) -> int:
        return DTYPE_BYTES[self.name]

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_dtype(
    wanted: DtypeName | None = None, *, devices: Sequence[Gpu] | None = None, features: frozenset[str] | None = None
) -> Dtype:
    """Return the format for this machine, or the `wanted` one; `devices` and `features` are read from it if not given.

    GPUs decide where there are any, the oldest of them.
    """
    if wanted is not None:
        return Dtype(name=wanted, reason="as set")
    devices = machine.devices() if devices is None else devices
    if devices:
        oldest = min(devices, key=lambda gpu: gpu.compute_capability)
        about = f"{oldest.name}, compute capability {oldest.compute_capability}"
        return Dtype(name="bfloat16" if oldest.compute_capability >= BFLOAT16_CAPABILITY else "float16", reason=about)
    features = cpu_features() if features is None else features
    for flag, name in BFLOAT16_CPU_FEATURES.items():
        if flag in features:
            return Dtype(name="bfloat16", reason=f"the processor has {name}")
    return Dtype(name="float32", reason="the processor has no bfloat16 instructions")
