"""What only the real engine can show: probabilities, grammars, aborts and its cache."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, Completion, EncodedPrompt, Outcome, Sampling, Stage
from serving.models.dtype import choose_dtype
from serving.replicas.vllm_engine import VllmModel, VllmSettings
from tests.engine.conftest import Served

QUESTION = "The capital of France is Paris. Is Paris the capital of France? Answer:"
SCHEMA = {
    "type": "object",
    "properties": {
        "sentences": {"type": "array", "items": {"type": "integer"}},
        "answer": {"type": "string"},
        "confidence": {"enum": [1, 2, 3, 4, 5]},
    },
    "required": ["sentences", "answer", "confidence"],
    "additionalProperties": False,
}


def make_call(served: Served, text: str, *, stage: Stage = Stage.MAP, **sampling: object) -> Call:
    ids = served.tokenizer.encode(text, add_special_tokens=False).ids
    return Call(
        prompt=EncodedPrompt(token_ids=array("I", ids), shared_prefix_tokens=0),
        sampling=Sampling(**({"max_output_tokens": 24} | sampling)),  # type: ignore[arg-type]
        stage=stage,
    )


async def complete(served: Served, *calls: Call) -> list[Outcome]:
    return await at_once(map(served.dispatcher().complete, calls))


async def complete_one(served: Served, call: Call) -> Completion:
    (outcome,) = await complete(served, call)
    assert isinstance(outcome, Completion), outcome
    return outcome


def test_how_a_call_is_to_be_drawn_is_what_the_engine_is_told(model_path: Path) -> None:
    """Without an engine: the parameters are checked by vLLM's own class when they are made."""
    settings = VllmSettings(
        model_path=str(model_path), context_tokens=512, on_gpu=False, dtype="float32", step_tokens=512
    )
    model = VllmModel(settings)
    drawing = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1}
    params = model.params(Sampling(max_output_tokens=5, **drawing, **penalties))  # type: ignore[arg-type]
    assert {name: getattr(params, name) for name in {**drawing, **penalties}} == drawing | penalties
    plain = model.params(Sampling(max_output_tokens=5))
    assert (plain.temperature, plain.top_p, plain.top_k, plain.repetition_penalty) == (0.0, 1.0, 0, 1.0)


async def test_choice_logprobs_are_the_models_own(served: Served) -> None:
    """Against transformers in the same number format; kernels differ by about 0.1."""
    import torch
    from transformers import AutoModelForCausalLM

    completion = await complete_one(served, make_call(served, QUESTION, max_output_tokens=1, choices=(" Yes", " No")))
    model = AutoModelForCausalLM.from_pretrained(served.model_path, dtype=getattr(torch, choose_dtype().name))
    ids = served.tokenizer.encode(QUESTION, add_special_tokens=False).ids
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), dim=-1)
    own = [float(expected[served.tokenizer.token_to_id(token)]) for token in ("ĠYes", "ĠNo")]
    assert completion.choice_logprobs == pytest.approx(own, abs=0.2)
    yes, no = completion.choice_logprobs
    assert yes - no == pytest.approx(own[0] - own[1], abs=0.1)
    assert completion.text == (" Yes" if yes > no else " No")
    assert completion.usage.output_tokens == 1


async def test_choice_logprobs_do_not_depend_on_the_other_calls_in_the_step(served: Served) -> None:
    call = make_call(served, QUESTION, max_output_tokens=1, choices=(" Yes", " No"))
    other = make_call(served, "One, two, three,", max_output_tokens=12)
    three = make_call(served, QUESTION, max_output_tokens=1, choices=(" No", " Yes", " Maybe"))
    alone, mixed, _, more = [await complete_one(served, call), *await complete(served, call, other, three)]
    assert isinstance(mixed, Completion)
    assert isinstance(more, Completion)
    assert mixed.choice_logprobs == pytest.approx(alone.choice_logprobs, abs=0.1)
    assert more.choice_logprobs[:2] == pytest.approx(alone.choice_logprobs[::-1], abs=0.1)


async def test_a_choice_of_several_tokens_is_refused(served: Served) -> None:
    call = make_call(served, QUESTION, max_output_tokens=1, choices=("Yes indeed", " No"))
    (outcome,) = await complete(served, call)
    assert isinstance(outcome, CallFailed)
    assert (outcome.error, outcome.attempts) == ("InternalError", 1)


async def test_json_output_parses_or_is_a_truncated_beginning(served: Served) -> None:
    calls = [
        make_call(
            served,
            f"Question {n}: what is {n} plus {n}? JSON:",
            max_output_tokens=limit,
            json_schema=json.dumps(SCHEMA),
        )
        for n, limit in enumerate((4, 12, 24, 64, 64, 64))
    ]
    for outcome in await complete(served, *calls):
        assert isinstance(outcome, Completion)
        if outcome.finish_reason == "stop":
            assert set(json.loads(outcome.text)) == set(SCHEMA["required"])
        else:
            assert outcome.finish_reason in {"length", "repetition"}
            assert '{"sentences":['.startswith(outcome.text[:14]), "no white space before or between"


async def test_a_model_that_repeats_itself_is_stopped(served: Served) -> None:
    text = "again and again and again and again and again and again and"
    completion = await complete_one(served, make_call(served, text, max_output_tokens=600))
    assert completion.finish_reason == "repetition"
    assert completion.usage.output_tokens < 300


async def test_a_prompt_beyond_the_context_is_our_fault_and_not_retried(served: Served) -> None:
    (outcome,) = await complete(served, make_call(served, QUESTION, max_output_tokens=5000))
    assert isinstance(outcome, CallFailed)
    assert (outcome.error, outcome.attempts) == ("ContextOverflow", 1)


async def test_the_second_question_on_a_chunk_finds_it_in_the_cache(served: Served) -> None:
    chunk = " ".join(f"Fact {n} is that {n * 7} follows {n * 7 - 1}." for n in range(60))
    before = served.progress()["cached_tokens"]
    first = await complete_one(served, make_call(served, chunk + " First question?"))
    second = await complete_one(served, make_call(served, chunk + " Another one?"))
    assert first.usage.cached_tokens < first.usage.prompt_tokens / 2
    assert second.usage.cached_tokens > second.usage.prompt_tokens * 0.7
    assert served.progress()["cached_tokens"] - before >= second.usage.cached_tokens


async def test_greedy_output_is_the_same_again(served: Served) -> None:
    call = make_call(served, "Once upon a time", max_output_tokens=16)
    assert (await complete_one(served, call)).text == (await complete_one(served, call)).text


async def test_a_text_is_told_while_it_is_written(served: Served) -> None:
    told: list[str] = []
    call = make_call(served, "Once upon a time", stage=Stage.DIRECT, max_output_tokens=80)
    completion = await complete_one(served, replace(call, on_text=told.append))
    assert len(told) > 1
    assert all(completion.text.startswith(text) for text in told)
    assert sorted(told, key=len) == told
    assert completion.text == (await complete_one(served, call)).text


@pytest.mark.parametrize("on_text", [None, lambda _: None], ids=["whole", "told while written"])
async def test_cancelling_aborts_in_the_engine(served: Served, on_text: Callable[[str], None] | None) -> None:
    calls = [make_call(served, f"Write a long story about {n}.", max_output_tokens=3000) for n in range(4)]
    calls = [replace(call, on_text=on_text) for call in calls]
    reader = asyncio.create_task(complete(served, *calls))
    assert await becomes(served, running=True)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert await becomes(served, running=False)
    assert served.progress()["kv_usage"] == 0.0


async def becomes(served: Served, *, running: bool) -> bool:
    """Whether calls run, or none do, within ten seconds."""
    for _ in range(100):
        if bool((await asyncio.to_thread(served.progress))["running"]) == running:
            return True
        await asyncio.sleep(0.1)
    return False


async def test_a_chat_is_written_while_the_prompts_of_others_are_computed_a_little_at_a_time(served: Served) -> None:
    """At full steps of prompt, 40 steps of the chat would compute all of these prompts."""
    prompts = [make_call(served, f"{i} " + QUESTION * 100, max_output_tokens=1) for i in range(10)]
    assert min(len(call.prompt.token_ids) for call in prompts) > 1500
    chat = make_call(served, "Once upon a time", stage=Stage.DIRECT, max_output_tokens=40)
    finished: list[Stage] = []

    dispatcher = served.dispatcher()

    async def send(call: Call) -> None:
        outcome = await dispatcher.complete(call)
        assert isinstance(outcome, Completion), outcome
        finished.append(call.stage)

    bulk = asyncio.create_task(at_once(map(send, prompts)))
    while not finished:
        await asyncio.sleep(0.05)
    await send(chat)
    done_before = finished.index(Stage.DIRECT)
    await bulk
    assert done_before <= 5, finished
