"""How much memory the KV cache gets: what is free, but no more than is useful.

A warm document is what makes the second question cheap, so on a CPU machine the cache takes what is free after
weights and activations, up to `USEFUL_TOKENS`.
"""

from __future__ import annotations

from pipeline.errors import OutOfMemory
from serving.models.profile import ModelProfile

USEFUL_TOKENS = 262_144
"""A document of about a million characters; on two cores a 1.5B model fills it in a quarter of an hour."""
SHARE = 0.8
"""Of the room that is left. The cache is resident from the start, so what it takes no other program has."""
ACTIVATION_BYTES = 2 << 30
"""Interpreter, libraries and the activations of one step; 1.6 GiB measured for a 1.5B model on the CPU."""
SPARE_BYTES = 1 << 30
"""Left for Ray, the command itself and the page cache that the weights are read through."""


def fit_kv_cache(profile: ModelProfile, *, free_bytes: int) -> int:
    """Return the bytes of a KV cache that fits beside the model in `free_bytes` of memory.

    Raises `OutOfMemory` when there is not room for a single full context.
    """
    per_token, weights, context_tokens = profile.kv_bytes_per_token, profile.weights_bytes, profile.context_tokens
    room = free_bytes - weights - ACTIVATION_BYTES - SPARE_BYTES
    if room < per_token * context_tokens:
        needed = weights + ACTIVATION_BYTES + SPARE_BYTES + per_token * context_tokens
        raise OutOfMemory(
            f"The model needs {needed / 2**30:.1f} GiB for a context of {context_tokens} tokens and "
            f"{free_bytes / 2**30:.1f} GiB are free; stop other programs, lower the context or take a smaller model."
        )
    return max(per_token * context_tokens, min(int(room * SHARE), per_token * USEFUL_TOKENS))
