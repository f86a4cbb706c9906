"""A model directory is judged before an engine spends minutes on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.errors import ContextTooSmall, ModelIncomplete
from serving.models.catalogue import read_catalogue
from serving.models.check import check_model
from serving.models.check_result import Status
from serving.models.convert_gguf import hf_name
from serving.models.dtype import choose_dtype
from serving.models.files import write_manifest
from serving.models.profile import fingerprint, load_profile
from tests.tiny_model import make_model, make_safetensors


def problems(directory: Path, context_tokens: int | None = None) -> dict[str, str]:
    results = check_model(directory, context_tokens=context_tokens)
    assert all(result.fix for result in results if result.status is not Status.OK), "every problem says how to fix"
    return {result.name: result.detail for result in results if result.status is Status.BAD}


def test_a_complete_directory_has_no_problems(tmp_path: Path) -> None:
    make_model(tmp_path)
    write_manifest(tmp_path, name="tiny", source="a test")
    assert {result.status for result in check_model(tmp_path, context_tokens=8192)} == {Status.OK}


def test_missing_files_are_named(tmp_path: Path) -> None:
    make_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "model.safetensors").unlink()
    assert problems(tmp_path)["model files"].endswith("lacks tokenizer.json, model.safetensors")
    with pytest.raises(ModelIncomplete, match=r"tokenizer\.json, model\.safetensors"):
        load_profile(tmp_path)


def test_an_index_tells_which_shards_are_missing(tmp_path: Path) -> None:
    make_model(tmp_path)
    make_safetensors(tmp_path / "a.safetensors")
    shards = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(shards))
    assert problems(tmp_path)["model files"].endswith("lacks b.safetensors")


@pytest.mark.parametrize(
    ("name", "content", "check"),
    [
        ("model.safetensors", b"\0" * 20, "model files"),
        ("model.safetensors.index.json", b"[]", "model files"),
        ("tokenizer.json", b"{}", "tokenizer"),
        ("config.json", b"{}", "model files"),
        ("chat_template.jinja", None, "chat template"),
        ("longfold.json", b"{}", "model files"),
    ],
)
def test_a_damaged_file_is_noticed(tmp_path: Path, name: str, content: bytes | None, check: str) -> None:
    make_model(tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    assert set(problems(tmp_path)) == {check}


def test_a_changed_file_does_not_pass_its_checksum(tmp_path: Path) -> None:
    make_model(tmp_path)
    write_manifest(tmp_path, name="tiny", source="a test")
    make_safetensors(tmp_path / "model.safetensors", b"\1" * 64)
    assert problems(tmp_path)["checksums"].endswith("model.safetensors")


def test_a_context_beyond_the_window_is_refused(tmp_path: Path) -> None:
    make_model(tmp_path, max_position_embeddings=4096)
    assert "context" in problems(tmp_path, context_tokens=8192)
    with pytest.raises(ContextTooSmall):
        load_profile(tmp_path, context_tokens=8192)
    assert load_profile(tmp_path).context_tokens == 4096


def test_a_profile_tells_what_a_token_costs(tmp_path: Path) -> None:
    qwen = make_model(tmp_path, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2, hidden_size=1536)
    assert load_profile(qwen, dtype="bfloat16").kv_bytes_per_token == 28_672


def test_a_model_of_the_catalogue_brings_its_fit(tmp_path: Path) -> None:
    make_model(tmp_path)
    plain = load_profile(tmp_path)
    assert (plain.name, plain.chunk_tokens, plain.gate.enabled) == (tmp_path.name, None, False)
    write_manifest(tmp_path, name="qwen2.5-coder-1.5b", source="a test")
    known = load_profile(tmp_path)
    assert (known.name, known.chunk_tokens) == ("qwen2.5-coder-1.5b", 2000)
    assert known.gate.enabled
    assert known == load_profile(tmp_path, read_catalogue()["qwen2.5-coder-1.5b"])


def test_a_fingerprint_follows_the_content_not_the_place(tmp_path: Path) -> None:
    one, other = make_model(tmp_path / "one"), make_model(tmp_path / "other", transformers_version="9")
    float32, bfloat16 = choose_dtype("float32"), choose_dtype("bfloat16")
    assert fingerprint(one, float32) == fingerprint(other, float32)
    assert fingerprint(one, float32) != fingerprint(one, bfloat16), "other roundings, other completions"
    make_safetensors(other / "model.safetensors", b"\1" * 64)
    assert fingerprint(one, float32) != fingerprint(other, float32)
    assert fingerprint(one, float32) != fingerprint(make_model(tmp_path / "third", rope_theta=1.0), float32)


def test_a_model_takes_the_memory_of_the_format_it_is_served_in(tmp_path: Path) -> None:
    """A checkpoint in two bytes a number, on a processor that computes in four."""
    make_model(tmp_path)
    half, full = (load_profile(tmp_path, dtype=name) for name in ("bfloat16", "float32"))
    assert full.weights_bytes == 2 * half.weights_bytes
    assert full.kv_bytes_per_token == 2 * half.kv_bytes_per_token


@pytest.mark.parametrize(
    ("gguf", "safetensors"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.27.attn_q.bias", "model.layers.27.self_attn.q_proj.bias"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_tensors_are_renamed(gguf: str, safetensors: str) -> None:
    assert hf_name(gguf) == safetensors
