"""How many replicas of a model this machine takes, and what each needs: engine options, Ray resources, environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pipeline
from pipeline.errors import OutOfMemory, SettingInvalid
from serving import machine
from serving.machine import Gpu, cpu_count, free_memory_bytes, tcmalloc_path
from serving.models.profile import ModelProfile
from serving.replicas.engine import EngineSpec
from serving.replicas.kv_cache import fit_kv_cache
from serving.settings import Settings

SOURCE_ROOT = str(Path(pipeline.__file__).parents[1])
CPU_STEP_TOKENS = 512
"""Engine step on a CPU: enough to keep the matrix units busy; what more tokens pass on to the next layer no longer
fits the processor's caches (docs/experiments.md)."""
GPU_STEP_TOKENS = 8192
GIB = 1 << 30
USUAL_SHARE = 0.9
"""Of a GPU's memory, as vLLM has it."""
SPARE_SHARE = 0.02
"""Of a GPU's memory, left free beside what other programs use: the engine's own start takes some before it counts."""
GPU_ACTIVATION_BYTES = 2 * GIB
"""CUDA's context and graphs, and the activations of one step."""
LARGE_GPU_BYTES = 70 * GIB
"""From here on vLLM's own defaults are twice as large too."""
ENGINE_CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
}
"""Variables that say where engines keep what they compiled, and the folders below the cache folder."""
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
    memory_share: float | None = None,
    cache_dir: Path | None = None,
    devices: Sequence[Gpu] | None = None,
) -> Placement:
    """Return the placement of a vLLM model on this machine, or on `devices`.

    With GPUs: one replica per group of `tensor_parallel`. Without: one replica on all cores, its KV cache as large as
    free memory allows. `kv_cache_bytes` is of each replica. Engines compile and cache under `cache_dir`.

    Raises SettingInvalid if there are not GPUs enough or they cannot share the model evenly, and OutOfMemory if it does
    not fit: before anything is started.
    """
    devices = machine.devices() if devices is None else devices
    environment = common_environment(cache_dir)
    options = {
        "model_path": str(profile.path),
        "context_tokens": profile.context_tokens,
        "dtype": profile.dtype.name,
    }
    if devices:
        replicas = replicas or max(1, len(devices) // tensor_parallel)
        _check_devices(profile, devices, replicas, tensor_parallel)
        share = memory_share or usable_share(devices)
        _check_gpu_memory(profile, devices, tensor_parallel, share)
        large = min(gpu.memory_bytes for gpu in devices) >= LARGE_GPU_BYTES
        return Placement(
            spec=EngineSpec(
                engine="vllm",
                model=profile.name,
                fingerprint=profile.fingerprint,
                options=options
                | {
                    "on_gpu": True,
                    "tensor_parallel": tensor_parallel,
                    "kv_cache_bytes": kv_cache_bytes // tensor_parallel if kv_cache_bytes else None,
                    "memory_share": share,
                    "step_tokens": 2 * GPU_STEP_TOKENS if large else GPU_STEP_TOKENS,
                    "max_sequences": 512 if large else 256,
                },
                stall_s=120.0,
            ),
            replicas=replicas,
            num_gpus=tensor_parallel,
            environment=environment | {"VLLM_LOGGING_LEVEL": "WARNING"},
        )
    if tensor_parallel > 1:
        raise SettingInvalid(
            f"LONGFOLD_TENSOR_PARALLEL is {tensor_parallel}, and there is no GPU to use: {machine.no_device_reason()}."
        )
    room = kv_cache_bytes or fit_kv_cache(profile, free_bytes=free_memory_bytes())
    return Placement(
        spec=EngineSpec(
            engine="vllm",
            model=profile.name,
            fingerprint=profile.fingerprint,
            options=options | {"on_gpu": False, "kv_cache_bytes": room, "step_tokens": CPU_STEP_TOKENS},
        ),
        replicas=replicas or 1,
        environment=environment | cpu_environment(),
    )


def usable_share(devices: Sequence[Gpu]) -> float:
    """The share of each GPU's memory that an engine may take: 0.9, or less where other programs use the GPU.

    vLLM refuses to start where less than its share is free.
    """
    free = [gpu.free_bytes / gpu.memory_bytes for gpu in devices if gpu.memory_bytes]
    return max(0.05, min([USUAL_SHARE, *(math.floor(100 * (share - SPARE_SHARE)) / 100 for share in free)]))


def _check_devices(profile: ModelProfile, devices: Sequence[Gpu], replicas: int, tensor_parallel: int) -> None:
    if replicas * tensor_parallel > len(devices):
        each = f" of {tensor_parallel} GPUs each" if tensor_parallel > 1 else ""
        raise SettingInvalid(
            f"{replicas} replica{'s' if replicas > 1 else ''}{each} need {replicas * tensor_parallel} GPUs, and "
            f"{len(devices)} can be used here. Lower LONGFOLD_REPLICAS or LONGFOLD_TENSOR_PARALLEL, or make more GPUs "
            f"visible (CUDA_VISIBLE_DEVICES)."
        )
    heads = profile.geometry.heads
    if heads % tensor_parallel:
        even = [str(number) for number in range(1, len(devices) + 1) if heads % number == 0]
        raise SettingInvalid(
            f"{profile.name} has {heads} attention heads, which {tensor_parallel} GPUs cannot share evenly. "
            f"LONGFOLD_TENSOR_PARALLEL may be {', '.join(even)} here."
        )


def _check_gpu_memory(profile: ModelProfile, devices: Sequence[Gpu], tensor_parallel: int, share: float) -> None:
    """Weights, activations and one full context must fit the share. A GPU that does not tell its memory is tried."""
    smallest = min(devices, key=lambda gpu: gpu.memory_bytes)
    if not smallest.memory_bytes:
        return
    kv_heads_each = max(1, profile.geometry.kv_heads // tensor_parallel)
    context_bytes = (
        profile.kv_bytes_per_token * profile.context_tokens * kv_heads_each // max(1, profile.geometry.kv_heads)
    )
    needed = profile.weights_bytes // tensor_parallel + GPU_ACTIVATION_BYTES + context_bytes
    room = int(share * smallest.memory_bytes)
    if needed > room:
        free = f"{smallest.name}: {smallest.free_bytes / GIB:.0f} of {smallest.memory_bytes / GIB:.0f} GiB free"
        raise OutOfMemory(
            f"{profile.name} needs {needed / GIB:.1f} GiB of each GPU for {profile.context_tokens} tokens of context, "
            f"and {room / GIB:.1f} GiB can be used ({free}). Spread it over more GPUs (LONGFOLD_TENSOR_PARALLEL), stop "
            f"other programs, or take a smaller or quantized model."
        )


def common_environment(cache_dir: Path | None = None) -> dict[str, str]:
    """What every replica is started with: nothing is downloaded, nothing is reported.

    What engines compile and cache goes below `cache_dir`: a home folder may be read-only, or gone with a container.
    """
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != SOURCE_ROOT]
    environment = {
        "PYTHONPATH": os.pathsep.join([SOURCE_ROOT, *inherited]),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if cache_dir is None:
        return environment
    engine = cache_dir.absolute() / "engine"
    return environment | {variable: str(engine / folder) for variable, folder in ENGINE_CACHES.items()}


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
    """How this machine serves the model. Raises as `place_vllm` does."""
    devices = machine.devices()
    if settings.device == "gpu" and not devices:
        raise SettingInvalid(f"LONGFOLD_DEVICE is gpu, and there is none to use: {machine.no_device_reason()}.")
    return _place(settings, profile, () if settings.device == "cpu" else devices, replicas=settings.replicas)


def place_on_nodes(settings: Settings, profile: ModelProfile, gpus_of_nodes: Sequence[int]) -> Placement:
    """How the nodes of a Ray cluster serve the model, from how many GPUs each has.

    A replica per GPU or group of GPUs, none of which spans two nodes; without GPUs, as many as the settings say. What
    GPUs elsewhere hold is not known here: a model that does not fit is found when it is loaded.
    """
    groups = sum(gpus // settings.tensor_parallel for gpus in gpus_of_nodes)
    if any(gpus_of_nodes) and (not groups or (settings.replicas or 0) > groups):
        raise SettingInvalid(
            f"{settings.replicas or 1} replicas of {settings.tensor_parallel} GPUs each were asked for, and the nodes "
            f"have {', '.join(map(str, gpus_of_nodes))}: a replica's GPUs must be on one node. Lower LONGFOLD_REPLICAS "
            "or LONGFOLD_TENSOR_PARALLEL."
        )
    elsewhere = Gpu(index=0, uuid="", name="GPU of a node", memory_bytes=0, free_bytes=0, compute_capability=0.0)
    return _place(settings, profile, [elsewhere] * sum(gpus_of_nodes), replicas=settings.replicas or groups or None)


def _place(settings: Settings, profile: ModelProfile, devices: Sequence[Gpu], *, replicas: int | None) -> Placement:
    return place_vllm(
        profile,
        replicas=replicas,
        tensor_parallel=settings.tensor_parallel,
        kv_cache_bytes=int(settings.kv_cache_gib * GIB) if settings.kv_cache_gib else None,
        memory_share=settings.gpu_memory_share,
        cache_dir=settings.cache_dir,
        devices=devices,
    )
