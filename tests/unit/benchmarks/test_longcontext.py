"""Native decoding beside Longfold: what is refused and why, what memory is by formula, what the report says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.data.question_set import make_documents
from benchmarks.report.longcontext import draw_longcontext, report_longcontext, seconds_for, tokens_per_s
from benchmarks.suites.longcontext import MEASURES, WAYS
from benchmarks.systems.byte_tokenizer import byte_tokenizer
from benchmarks.systems.model import find_bench_model
from benchmarks.systems.native import BLOCK_TOKENS, SPARE_BLOCKS, kv_cache_bytes, native_calls, refuse, window_for
from benchmarks.systems.random_model import GEOMETRIES, make_random_model, parameters, stretch, with_random_weights
from pipeline.errors import CallerError, UnknownName
from pipeline.llm.tokenizer import Tokenizer
from serving.models.profile import ModelProfile
from serving.replicas.engine import EngineSpec
from serving.replicas.placement import Placement
from serving.settings import Settings

GIB = 1 << 30
HEADER = {"model": {"name": "m"}, "hardware": {"gpus": [], "cores": 2}}


@pytest.fixture
def llama(tmp_path: Path) -> ModelProfile:
    return make_random_model("random/llama-3-8b", tmp_path, dtype="bfloat16")


def question(seconds: float, **changes: Any) -> dict[str, Any]:
    told = {
        "first_sign_s": 1.0,
        "cpu_s": 2.0,
        "prompt_tokens": 900,
        "cached_tokens": 0,
        "output_tokens": 100,
        "verdict": "right",
    }
    return {"seconds": seconds, **told, **changes}


def row(way: str, seconds: list[float], **changes: Any) -> dict[str, Any]:
    memory = dict.fromkeys(("kv_formula_bytes", "kv_reserved_bytes", "kv_used_bytes", "weights_bytes"), GIB)
    about = {"side": way, "length": 8_000, "document_tokens": 8_100, "window_tokens": 8_192, "weights": "as published"}
    return {
        "key": f"{way}/8000",
        **about,
        **memory,
        "peak_rss_bytes": 3 * GIB,
        "peak_gpu_bytes": None,
        "questions": [question(one) for one in seconds],
        **changes,
    }


@pytest.mark.parametrize(
    ("geometry", "kib_per_token", "billions"),
    [("llama-3-8b", 128, 8.0), ("qwen2.5-7b", 56, 7.6), ("qwen3-8b", 144, 8.2), ("llama-3-70b", 320, 70.6)],
)
def test_a_published_geometry_has_its_published_sizes(
    geometry: str, kib_per_token: int, billions: float, tmp_path: Path
) -> None:
    profile = make_random_model(f"random/{geometry}", tmp_path, dtype="bfloat16")
    assert profile.kv_bytes_per_token == kib_per_token << 10
    assert parameters(GEOMETRIES[geometry]) / 1e9 == pytest.approx(billions, rel=0.01)
    assert profile.weights_bytes == 2 * parameters(GEOMETRIES[geometry])


def test_a_random_model_is_known_by_its_name_and_an_unknown_geometry_is_refused(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path)
    model = find_bench_model("random/qwen2.5-7b", settings, lambda _: None)
    assert model.random_weights
    assert model.describe()["name"] == "random/qwen2.5-7b"
    with pytest.raises(UnknownName, match="llama-3-8b"):
        find_bench_model("random/none", settings, lambda _: None)


def test_the_gates_words_are_single_tokens_of_a_random_model(llama: ModelProfile) -> None:
    tokenizer = Tokenizer.from_directory(llama.path)
    assert [len(tokenizer.encode_template(word)) for word in ("Yes", "No", "是", "否")] == [1, 1, 1, 1]


def test_random_weights_are_asked_of_the_engine_and_nothing_else_changes() -> None:
    placement = Placement(spec=EngineSpec(engine="vllm", options={"model_path": "/m"}), environment={})
    changed = with_random_weights(placement)
    assert changed.spec.options == {"model_path": "/m", "load_format": "dummy"}
    assert replace(changed, spec=placement.spec) == placement


def test_a_stretched_model_has_the_longer_window_and_the_same_sizes(llama: ModelProfile, tmp_path: Path) -> None:
    longer = stretch(llama, 4_000_000, tmp_path / "longer")
    assert longer.context_tokens == longer.geometry.window_tokens == 4_000_000
    assert longer.kv_bytes_per_token == llama.kv_bytes_per_token
    assert json.loads((longer.path / "config.json").read_text())["max_position_embeddings"] == 4_000_000
    assert Tokenizer.from_directory(longer.path).fingerprint == Tokenizer.from_directory(llama.path).fingerprint


def test_the_kv_cache_holds_the_tokens_in_whole_blocks_beside_the_engines_own(llama: ModelProfile) -> None:
    block = BLOCK_TOKENS * llama.kv_bytes_per_token
    assert kv_cache_bytes(llama, 1) == (1 + SPARE_BLOCKS) * block
    assert kv_cache_bytes(llama, 8 * BLOCK_TOKENS) == (8 + SPARE_BLOCKS) * block
    assert kv_cache_bytes(llama, 131_072) == pytest.approx(16 * GIB, rel=0.01)


def test_native_decoding_is_refused_by_window_then_by_memory_and_says_which(llama: ModelProfile) -> None:
    short = replace(llama, geometry=replace(llama.geometry, window_tokens=8_192))
    beyond = refuse(short, 8_320, free_bytes=1_000 * GIB)
    assert beyond is not None
    assert beyond.error == "ContextTooSmall"
    assert "8,192" in beyond.reason
    too_much = refuse(llama, 131_072, free_bytes=24 * GIB)
    assert too_much is not None
    assert too_much.error == "OutOfMemory"
    assert refuse(llama, 8_192, free_bytes=24 * GIB) is None


def test_native_prompts_share_the_document_and_fit_the_window_that_is_made_for_them() -> None:
    [document] = make_documents(1, 1, 2_000, 3, ("en",), ("lookup",))
    tokenizer = byte_tokenizer()
    calls = native_calls(document, tokenizer)
    assert len(calls) == 3
    document_tokens = tokenizer.count(document.text)
    beginnings = {call.prompt.token_ids[:document_tokens].tobytes() for call in calls}
    assert len(beginnings) == 1
    window = window_for(calls)
    assert window % BLOCK_TOKENS == 0
    assert (
        max(call.cost_tokens() for call in calls) <= window < max(call.cost_tokens() for call in calls) + BLOCK_TOKENS
    )


def test_further_questions_cost_the_mean_of_the_later_ones_and_say_so() -> None:
    measured = row("native", [10.0, 2.0, 4.0])
    assert seconds_for(measured, 1) == (10.0, True)
    assert seconds_for(measured, 3) == (16.0, True)
    assert seconds_for(measured, 5) == (10.0 + 4 * 3.0, False)
    assert seconds_for(row("native", [10.0]), 5) is None


def test_tokens_per_second_leave_out_what_was_cached() -> None:
    cached = row("native", [10.0])
    cached["questions"] = [question(10.0, cached_tokens=400)]
    assert tokens_per_s(cached) == pytest.approx((900 - 400 + 100) / 10.0)


def test_the_report_has_a_line_for_what_cannot_run_and_judges_no_random_weights() -> None:
    refused = {
        "key": "native/64000",
        "side": "native",
        "length": 64_000,
        "document_tokens": 64_100,
        "weights": "as published",
        "refused": {"error": "ContextTooSmall", "reason": "The window is 8,192 tokens."},
    }
    rows = [row("native", [10.0, 2.0]), row("stretched", [5.0], weights="random weights, speed only"), refused]
    told = report_longcontext(HEADER, rows, [])
    assert "native at 64,100 tokens cannot run: ContextTooSmall: The window is 8,192 tokens." in told
    assert "stretched: random weights, speed only" in told
    [native] = [line for line in told if "native" in line and line.endswith("2 of 2")]
    assert "~18" in native
    [stretched] = [line for line in told if "stretched" in line and line.endswith(" -")]
    assert "0 of" not in stretched
    drawn = draw_longcontext(HEADER, rows, [])
    assert "stretched (random weights)" in drawn
    assert "ContextTooSmall" in drawn


def test_every_usual_way_can_be_measured() -> None:
    assert set(WAYS) < set(MEASURES)


def test_a_model_without_an_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="real model"):
        find_bench_model("scripted", Settings(cache_dir=tmp_path), lambda _: None).place()
