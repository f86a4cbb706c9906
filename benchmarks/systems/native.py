"""The other way: the whole document in the prompt, and a window as long as that takes.

The document comes first and the question last, as plain messages: what anyone would send to vLLM. So the second
question on a document finds it in the prefix cache, as Longfold's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.data.items import BenchDocument
from pipeline.errors import ContextTooSmall, OutOfMemory
from pipeline.llm.budget import TokenBudget
from pipeline.llm.chat import chat_call
from pipeline.llm.model import Call
from pipeline.llm.tokenizer import Tokenizer
from serving.machine import free_memory_bytes, gpus
from serving.models.profile import ModelProfile
from serving.replicas.kv_cache import fit_kv_cache

OUTPUT_TOKENS = 64
BLOCK_TOKENS = 128
"""vLLM's blocks on a CPU; on a GPU they are smaller."""
SPARE_BLOCKS = 2
"""One is vLLM's own."""
GPU_SHARE = 0.9
_NO_LIMIT = TokenBudget(1 << 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no measurement, known before any try."""

    error: str
    """`ContextTooSmall` or `OutOfMemory`."""
    reason: str


def native_calls(document: BenchDocument, tokenizer: Tokenizer) -> list[Call]:
    """One call per question; their prompts have the document in common."""
    return [
        chat_call(
            [{"role": "user", "content": f"{document.text}\n\n{item.question} Answer in a few words."}],
            tokenizer,
            _NO_LIMIT,
            max_output_tokens=OUTPUT_TOKENS,
        )
        for item in document.items
    ]


def window_for(calls: Sequence[Call]) -> int:
    """The window that the longest call needs, in whole blocks."""
    return -(-max(call.cost_tokens() for call in calls) // BLOCK_TOKENS) * BLOCK_TOKENS


def kv_cache_bytes(profile: ModelProfile, tokens: int) -> int:
    """By formula, for `tokens` held at once, in whole blocks and with the engine's own."""
    blocks = -(-tokens // BLOCK_TOKENS) + SPARE_BLOCKS
    return blocks * BLOCK_TOKENS * profile.kv_bytes_per_token


def refuse(profile: ModelProfile, needed_tokens: int, *, free_bytes: int) -> Refusal | None:
    """Whether `needed_tokens` are too many for the model's window, or their keys and values for `free_bytes`."""
    try:
        profile.geometry.served_context(needed_tokens)
        fit_kv_cache(replace(profile, context_tokens=needed_tokens), free_bytes=free_bytes)
    except (ContextTooSmall, OutOfMemory) as error:
        return Refusal(error=type(error).__name__, reason=str(error))
    return None


def memory_for_engine_bytes(tensor_parallel: int) -> int:
    """Free memory where an engine would run: on the GPUs that it would take, or in the machine."""
    found = gpus()[:tensor_parallel]
    return int(GPU_SHARE * sum(gpu.free_bytes for gpu in found)) if found else free_memory_bytes()
