"""The small model as `longfold models pull smollm2-135m` leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.models.check import check_model
from serving.models.check_result import Status
from serving.models.profile import load_profile
from serving.models.pull import find_model
from serving.settings import load_settings

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model() -> Path:
    found = find_model("smollm2-135m", cache_dir=load_settings().cache_dir)
    if found is None:
        pytest.skip("smollm2-135m is not on this machine; `make test` brings it")
    return found


def test_it_passes_every_check(model: Path) -> None:
    assert {result.status for result in check_model(model, context_tokens=8192)} == {Status.OK}


def test_its_geometry_is_that_of_the_original(model: Path) -> None:
    profile = load_profile(model, dtype="bfloat16")
    assert (profile.geometry.layers, profile.kv_bytes_per_token) == (30, 23_040)
    assert (profile.context_tokens, profile.chunk_tokens) == (8192, 1500)


def test_its_weights_are_loaded_whole_and_read_text(model: Path) -> None:
    """Permuted, misnamed or unshared matrices would leave a model that predicts noise."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lm, report = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        best = int(lm(ids).logits[0, -1].argmax())
    assert tokenizer.decode(best).strip() == "Paris"
