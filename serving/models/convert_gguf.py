"""GGUF file → a model directory of bf16 safetensors, as vLLM and transformers load it.

Runs as a process of its own (`python convert_gguf.py FILE.gguf OUT`), so that its memory and its imports end with
it. Weights stream through a block at a time: 1.5 billion parameters take 2 GB, where transformers' own loader takes
6 GB for the same bytes.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_VALUES = 1 << 18
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def hf_name(gguf_name: str) -> str:
    """Return the safetensors name of a GGUF tensor: "blk.3.attn_q.bias" → "model.layers.3.self_attn.q_proj.bias"."""
    if layer := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", gguf_name):
        return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
    stem, _, kind = gguf_name.rpartition(".")
    return f"{_TOP_NAMES[stem]}.{kind}"


def unpermute(weights: Any, heads: int) -> Any:
    """Undo the row order that llama.cpp gives the q and k matrices of Llama models: pairs → halves of a head."""
    pairs = weights.reshape(heads, weights.shape[0] // heads // 2, 2, *weights.shape[1:])
    return pairs.swapaxes(2, 1).reshape(weights.shape)


def convert_gguf(gguf: Path, out: Path) -> None:
    """Write config, tokenizer and weights of `gguf` into `out`, which must not hold anything yet."""
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    folder = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name, "local_files_only": True}
    config = AutoConfig.from_pretrained(**folder)
    if config.model_type not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise SystemExit(f"cannot convert a GGUF file of type {config.model_type}; known: {known}")
    tensors = GGUFReader(gguf).tensors
    # Some files carry an output matrix of their own although the original model shares it with the embedding.
    config.tie_word_embeddings = "output.weight" not in {tensor.name for tensor in tensors}
    config.architectures = [_ARCHITECTURES[config.model_type]]
    config.dtype = "bfloat16"
    out.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    GenerationConfig.from_model_config(config).save_pretrained(out)
    AutoTokenizer.from_pretrained(**folder).save_pretrained(out)
    heads = {}
    if config.model_type == "llama":
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    _write_safetensors(out / "model.safetensors", tensors, heads)


def _write_safetensors(path: Path, tensors: Any, permuted_heads: Mapping[str, int]) -> None:
    """Write all tensors as bf16: eight bytes of header length, the header in JSON, the data."""
    import torch
    from gguf import dequantize

    torch.set_num_threads(1)  # two threads gain nothing here, and spin when another process is busy
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for tensor in tensors:
        end = start + 2 * int(tensor.n_elements)
        shape = [int(size) for size in reversed(tensor.shape)]
        header[hf_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
        start = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)  # the data starts at a multiple of eight
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors:
            heads = next((n for part, n in permuted_heads.items() if f".{part}." in tensor.name), 0)
            # In blocks, so that the intermediate arrays stay in the processor's cache.
            rows = len(tensor.data) if heads else max(1, _BLOCK_VALUES // int(tensor.shape[0]))
            for first in range(0, len(tensor.data), rows):
                values = dequantize(tensor.data[first : first + rows], tensor.tensor_type)
                values = unpermute(values, heads) if heads else values
                # Through int16, because numpy knows no bf16.
                half = torch.from_numpy(values.copy()).to(torch.bfloat16)
                half.view(torch.int16).numpy().tofile(file)


if __name__ == "__main__":
    convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
