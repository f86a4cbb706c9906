"""How much memory the KV cache gets: what is free, but no more than is useful.

A warm document is what makes the second question cheap, so on a CPU machine the cache takes what is free after
weights and activations, up to `USEFUL_TOKENS`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import ModelIncomplete, OutOfMemory

USEFUL_TOKENS = 262_144
"""A document of about a million characters; on two cores a 1.5B model fills it in a quarter of an hour."""
SHARE = 0.8
"""Of the room that is left. The cache is resident from the start, so what it takes no other program has."""
ACTIVATION_BYTES = 2 << 30
"""Interpreter, libraries and the activations of one step; 1.6 GiB measured for a 1.5B model on the CPU."""
SPARE_BYTES = 1 << 30
"""Left for Ray, the command itself and the page cache that the weights are read through."""
BF16_BYTES = 2


def model_config(model_path: str) -> dict[str, Any]:
    """The text part of the model's `config.json`. Raises `ModelIncomplete` when there is none."""
    path = Path(model_path) / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{path} cannot be read ({error}); pull the model again.") from error
    return {**config, **config.get("text_config", {})}


def kv_bytes_per_token(config: dict[str, Any]) -> int:
    """Key and value of every layer, in bf16."""
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return int(2 * config["num_hidden_layers"] * kv_heads * head_dim * BF16_BYTES)


def weight_bytes(model_path: str) -> int:
    """Size of the weight files. Raises `ModelIncomplete` when there are none."""
    total = sum(path.stat().st_size for path in Path(model_path).glob("*.safetensors"))
    if not total:
        raise ModelIncomplete(f"{model_path} holds no *.safetensors file; pull the model again.")
    return total


def fit_kv_cache(model_path: str, *, free_bytes: int, context_tokens: int) -> int:
    """Return the bytes of a KV cache that fits beside the model in `free_bytes` of memory.

    Raises `OutOfMemory` when there is not room for a single full context.
    """
    per_token = kv_bytes_per_token(model_config(model_path))
    weights = weight_bytes(model_path)
    room = free_bytes - weights - ACTIVATION_BYTES - SPARE_BYTES
    if room < per_token * context_tokens:
        needed = weights + ACTIVATION_BYTES + SPARE_BYTES + per_token * context_tokens
        raise OutOfMemory(
            f"The model needs {needed / 2**30:.1f} GiB for a context of {context_tokens} tokens and "
            f"{free_bytes / 2**30:.1f} GiB are free; stop other programs, lower the context or take a smaller model."
        )
    return max(per_token * context_tokens, min(int(room * SHARE), per_token * USEFUL_TOKENS))
