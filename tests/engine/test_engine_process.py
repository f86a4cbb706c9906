"""An engine in a process of its own, as the benchmarks load it: a published architecture with random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.data.question_set import make_documents
from benchmarks.systems.engine_process import EngineProcess, load_watched
from benchmarks.systems.native import OUTPUT_TOKENS, kv_cache_bytes, native_calls, window_for
from benchmarks.systems.random_model import make_random_model, stretch, with_random_weights
from pipeline.errors import ReplicaUnavailable
from pipeline.llm.tokenizer import Tokenizer
from serving.replicas.placement import place_vllm


def test_a_second_question_on_a_document_finds_it_cached_and_everything_is_seen(tmp_path: Path) -> None:
    profile = make_random_model("random/smollm2-135m", tmp_path)
    [document] = make_documents(1, 1, 800, 2, ("en",), ("lookup",))
    calls = native_calls(document, Tokenizer.from_directory(profile.path))
    window = window_for(calls)
    longer = stretch(profile, window, tmp_path / "longer")
    placement = with_random_weights(place_vllm(longer, kv_cache_bytes=kv_cache_bytes(longer, window)))
    process = EngineProcess(placement, load_watched)
    try:
        first, second = process.work(calls)
        with pytest.raises(ReplicaUnavailable):
            process.work([calls[0], None])  # type: ignore[list-item]
    finally:
        process.stop()
    assert 0 < first.first_token_s <= first.completion.seconds
    assert 0 < first.completion.usage.output_tokens <= OUTPUT_TOKENS
    assert first.completion.usage.cached_tokens == 0
    assert second.completion.usage.cached_tokens > second.completion.usage.prompt_tokens / 2
    assert second.first_token_s < first.first_token_s
    assert first.kv_tokens >= window
    assert first.kv_usage > 0.8
