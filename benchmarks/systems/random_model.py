"""Models of a published architecture with random weights: nothing is downloaded, and speed and memory are real.

`--model random/llama-3-8b` is made on the spot: a configuration, a tokenizer with a token per byte, and weights that
vLLM draws when it loads (`load_format` "dummy"). What such a model says means nothing. Its gate ranks nothing either,
so that the words beside it decide which chunks are read, and outputs run to their limits: Longfold's times are those of
a bad case.

`stretch` makes the same of a model that is here, with a longer window. How the positions are scaled (YaRN and its like)
changes angles that are looked up in a table of the window's length, not the amount of work, so none of it is applied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.systems.byte_tokenizer import CHAT_TEMPLATE, CONTROL, byte_tokenizer_json
from pipeline.errors import UnknownName
from pipeline.findings.confidence import Calibration, GateSettings
from serving.models.dtype import DtypeName, choose_dtype
from serving.models.profile import ModelProfile, read_geometry

if TYPE_CHECKING:
    from serving.replicas.placement import Placement

RANDOM = "random/"
RANDOM_WEIGHTS = "random weights, speed only"
"""How a row on such a model is labelled."""
_CHOICES = ("Yes", "No", "是", "否")
"""What the gate lets a model say: each must be one token."""
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False}


def _sizes(
    layers: int, hidden: int, heads: tuple[int, int, int], inner: int, vocabulary: int, *, tied: bool = False
) -> dict[str, Any]:
    """`heads`: of the queries, of keys and values, and the dimension of each."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
    }


GEOMETRIES: Mapping[str, Mapping[str, Any]] = {
    "smollm2-135m": {**_LLAMA, **_sizes(30, 576, (9, 3, 64), 1536, 49_152, tied=True)},
    "qwen2.5-1.5b": {**_QWEN2, **_sizes(28, 1536, (12, 2, 128), 8960, 151_936)},
    "qwen2.5-7b": {**_QWEN2, **_sizes(28, 3584, (28, 4, 128), 18_944, 152_064)},
    "llama-3-8b": {**_LLAMA, **_sizes(32, 4096, (32, 8, 128), 14_336, 128_256)},
    "qwen3-8b": {**_QWEN3, **_sizes(36, 4096, (32, 8, 128), 12_288, 151_936)},
    "llama-3-70b": {**_LLAMA, **_sizes(80, 8192, (64, 8, 128), 28_672, 128_256)},
}
"""As published, from each model's config.json."""
WINDOW_TOKENS = 2_097_152
"""Longer than any document here, so that memory alone decides how far native decoding goes."""
_GATE = GateSettings(enabled=True, lexical_nats=1.5, keep_margin=1.0, keep_at_least=3, clear_score=1.5)
"""Of the default model."""


def make_random_model(
    name: str, cache_dir: Path, *, context_tokens: int | None = None, dtype: DtypeName | None = None
) -> ModelProfile:
    """Write the directory of `random/GEOMETRY` if need be. Raises UnknownName."""
    geometry = name.removeprefix(RANDOM)
    if geometry not in GEOMETRIES:
        raise UnknownName(f"No geometry {geometry!r}; the geometries are {', '.join(GEOMETRIES)}.")
    folder = cache_dir / "random-models" / geometry
    write_random_model(folder, GEOMETRIES[geometry])
    read = read_geometry(folder)
    served = choose_dtype(dtype)
    return ModelProfile(
        path=folder,
        name=name,
        context_tokens=read.served_context(context_tokens),
        chunk_tokens=None,
        geometry=read,
        dtype=served,
        weights_bytes=served.bytes * parameters(GEOMETRIES[geometry]),
        gate=_GATE,
        calibration=Calibration(),
        fingerprint=f"{name} {served.name}",
    )


def write_random_model(folder: Path, geometry: Mapping[str, Any]) -> None:
    """A model directory without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {"bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257}
    rest = {"max_position_embeddings": WINDOW_TOKENS, "rms_norm_eps": 1e-5, "hidden_act": "silu", "dtype": "bfloat16"}
    positions = {"rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"}}
    (folder / "config.json").write_text(json.dumps({**geometry, **ids, **rest, **positions}, indent=1), "utf-8")
    (folder / "tokenizer.json").write_text(byte_tokenizer_json((*CONTROL, *_CHOICES)), "utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")
    names = {"bos_token": CONTROL[0], "eos_token": CONTROL[1], "pad_token": CONTROL[1]}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, **names}), "utf-8")


def parameters(geometry: Mapping[str, Any]) -> int:
    """Weights of a dense decoder, the small vectors left out."""
    hidden, inner, head = geometry["hidden_size"], geometry["intermediate_size"], geometry["head_dim"]
    attention = hidden * head * 2 * (geometry["num_attention_heads"] + geometry["num_key_value_heads"])
    layers = geometry["num_hidden_layers"] * (attention + 3 * hidden * inner)
    return int(layers + geometry["vocab_size"] * hidden * (1 if geometry["tie_word_embeddings"] else 2))


def stretch(profile: ModelProfile, window_tokens: int, folder: Path) -> ModelProfile:
    """The same architecture and tokenizer with a window of `window_tokens`, in `folder`; its weights are random."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((profile.path / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = window_tokens
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (profile.path / name).is_file():
            (folder / name).write_bytes((profile.path / name).read_bytes())
    geometry = replace(profile.geometry, window_tokens=window_tokens)
    return replace(profile, path=folder, context_tokens=window_tokens, geometry=geometry)


def with_random_weights(placement: Placement) -> Placement:
    """vLLM then looks for no weights."""
    return replace(placement, spec=replace(placement.spec, options={**placement.spec.options, "load_format": "dummy"}))
