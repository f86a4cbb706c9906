"""How many replicas of a model this machine takes, and what each needs: engine options, Ray resources, environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pipeline
from serving.machine import cpu_count, free_memory_bytes, gpus, tcmalloc_path
from serving.models.profile import ModelProfile
from serving.replicas.engine import EngineSpec
from serving.replicas.kv_cache import fit_kv_cache
from serving.settings import Settings

SOURCE_ROOT = str(Path(pipeline.__file__).parents[1])
CPU_STEP_TOKENS = 512
"""Engine step on a CPU: enough to keep the matrix units busy; what more tokens pass on to the next layer no longer
fits the processor's caches (docs/experiments.md)."""
GPU_STEP_TOKENS = 8192
GLIBC_KEEPS_MEMORY = "glibc.malloc.mmap_threshold=34359738368:glibc.malloc.trim_threshold=34359738368"
"""Large buffers come and go at every engine step; by default glibc maps, faults in and unmaps each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Replicas, all alike. `num_cpus` is a reservation in Ray's books; an engine on the CPU uses all cores."""

    spec: EngineSpec
    replicas: int = 1
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    environment: Mapping[str, str]
    health_period_s: float = 10.0
    health_timeout_s: float = 120.0
    """Generous: an engine step on a busy CPU holds up the replica's answer."""


def place_vllm(
    profile: ModelProfile,
    *,
    replicas: int | None = None,
    tensor_parallel: int = 1,
    kv_cache_bytes: int | None = None,
) -> Placement:
    """Return the placement of a vLLM model on this machine.

    With GPUs: one replica per group of `tensor_parallel`. Without: one replica on all cores, its KV cache as large as
    free memory allows. Raises `OutOfMemory`.
    """
    devices = len(gpus())
    options = {
        "model_path": str(profile.path),
        "context_tokens": profile.context_tokens,
        "dtype": profile.dtype.name,
    }
    if devices:
        return Placement(
            spec=EngineSpec(
                engine="vllm",
                options=options
                | {
                    "on_gpu": True,
                    "tensor_parallel": tensor_parallel,
                    "kv_cache_bytes": kv_cache_bytes,
                    "step_tokens": GPU_STEP_TOKENS,
                    "max_sequences": 256,
                },
                stall_s=120.0,
            ),
            replicas=replicas or max(1, devices // tensor_parallel),
            num_gpus=tensor_parallel,
            environment=common_environment() | {"VLLM_LOGGING_LEVEL": "WARNING"},
        )
    room = kv_cache_bytes or fit_kv_cache(profile, free_bytes=free_memory_bytes())
    return Placement(
        spec=EngineSpec(
            engine="vllm",
            options=options | {"on_gpu": False, "kv_cache_bytes": room, "step_tokens": CPU_STEP_TOKENS},
        ),
        replicas=replicas or 1,
        environment=common_environment() | cpu_environment(),
    )


def common_environment() -> dict[str, str]:
    """What every replica is started with: nothing is downloaded, nothing is reported."""
    return {
        "PYTHONPATH": SOURCE_ROOT,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def cpu_environment() -> dict[str, str]:
    """For an engine inside the replica's process, on all cores.

    Passive waiting: spinning threads collapse eightfold as soon as anything else runs.
    """
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCHDYNAMO_DISABLE": "1",  # one helper of the sampler compiles itself on first use, for six seconds
        "OMP_NUM_THREADS": str(cpu_count()),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if (tcmalloc := tcmalloc_path()) is not None:
        return environment | {"LD_PRELOAD": str(tcmalloc)}
    return environment | {"GLIBC_TUNABLES": GLIBC_KEEPS_MEMORY}


def place_model(settings: Settings, profile: ModelProfile) -> Placement:
    """How this machine serves the model."""
    room_gib = settings.kv_cache_gib
    return place_vllm(
        profile,
        replicas=settings.replicas,
        tensor_parallel=settings.tensor_parallel,
        kv_cache_bytes=int(room_gib * 2**30) if room_gib else None,
    )
