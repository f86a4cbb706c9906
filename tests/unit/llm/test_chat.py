"""A conversation reaches the model through its own template, and no message can leave its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CallerError, ModelIncomplete, PromptTooLong, TemplateRefused
from pipeline.llm.budget import TokenBudget
from pipeline.llm.chat import chat_call, encode_chat
from pipeline.llm.chat_template import ChatTemplate
from pipeline.llm.tokenizer import Tokenizer
from tests.factories import CONTROL, make_tokenizer, tokenizer_json

ALTERNATING = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m['role'] }}>{{ m['content'] | trim }}{% endfor %}"
)
SYSTEM_IN_FIRST_TURN = (
    "{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}[{{ m['role'] }}]{{ first if loop.first }}{{ m['content'] }}{% endfor %}"
)
ANYTHING = st.lists(
    st.sampled_from([*CONTROL, "<|im_", "start|>", "user\n", "text ", "\ue000longfold-text-0\ue001", "{{ 7 }}", "中"])
).map("".join)


def conversation(*turns: str) -> list[dict[str, str]]:
    return [dict(zip(("role", "content"), turn.split(": ", 1), strict=True)) for turn in turns]


def test_several_turns_and_a_system_message_read_as_the_template_writes_them() -> None:
    tokenizer = make_tokenizer()
    prompt = encode_chat(conversation("system: Be brief.", "user: Hi", "assistant: Yes?", "user: Why"), tokenizer)
    assert tokenizer.decode(prompt.token_ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nWhy<|im_end|>\n<|im_start|>assistant\n"
    )


@given(st.lists(ANYTHING, min_size=1, max_size=4))
def test_no_text_adds_a_control_token_and_every_text_arrives_whole(texts: list[str]) -> None:
    tokenizer = make_tokenizer()
    messages = [{"role": "user", "content": text} for text in texts]
    ids = encode_chat(messages, tokenizer).token_ids
    control = [token for token in ids if token in tokenizer.control_ids]
    assert len(control) == 2 * len(texts) + 1, "a beginning and an end per message, and the model's own beginning"
    assert tokenizer.decode(ids) == "".join(f"<|im_start|>user\n{text}<|im_end|>\n" for text in texts) + (
        "<|im_start|>assistant\n"
    )


def test_a_template_may_move_a_message_but_not_lose_one() -> None:
    tokenizer = Tokenizer(tokenizer_json(), SYSTEM_IN_FIRST_TURN, {})
    prompt = encode_chat(conversation("system: S", "user: U"), tokenizer)
    assert tokenizer.decode(prompt.token_ids) == "[user]S\nU"
    loses = ChatTemplate("{{ messages[-1]['content'] }}", {})
    with pytest.raises(TemplateRefused, match="leaves out"):
        loses.render(("system", "user"))


@pytest.mark.parametrize(
    ("turns", "said"),
    [(["system: S", "user: U"], "System role not supported"), (["user: U", "user: U"], "roles must alternate")],
)
def test_what_the_models_template_refuses_is_the_callers_to_change(turns: list[str], said: str) -> None:
    with pytest.raises(TemplateRefused, match=said):
        encode_chat(conversation(*turns), Tokenizer(tokenizer_json(), ALTERNATING, {}))


def test_a_template_that_no_user_message_passes_is_the_models_fault() -> None:
    with pytest.raises(ModelIncomplete, match="refuses"):
        Tokenizer(tokenizer_json(), "{{ raise_exception('no') }}", {})


@pytest.mark.parametrize("messages", [[], [{"role": "tool", "content": "x"}]])
def test_what_is_no_conversation_is_refused(messages: list[dict[str, str]]) -> None:
    with pytest.raises(CallerError):
        encode_chat(messages, make_tokenizer())


def test_a_conversation_that_does_not_fit_says_by_how_many_tokens() -> None:
    tokenizer, budget = make_tokenizer(), TokenBudget(100)
    messages = conversation("user: " + "x" * 60)
    prompt_tokens = len(encode_chat(messages, tokenizer).token_ids)
    with pytest.raises(PromptTooLong, match="more than") as caught:
        chat_call(messages, tokenizer, budget, max_output_tokens=50)
    assert caught.value.over_tokens == prompt_tokens + 50 - 100
    fits = chat_call(messages, tokenizer, budget, max_output_tokens=100 - prompt_tokens)
    assert fits.cost_tokens() == 100
    with pytest.raises(PromptTooLong):
        chat_call(conversation("user: " + "x" * 100), tokenizer, budget)


def test_without_a_limit_the_answer_may_fill_the_context() -> None:
    assert chat_call(conversation("user: Hi"), make_tokenizer(), TokenBudget(200)).cost_tokens() == 200


DRAWING: dict[str, Any] = {
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
}


@pytest.mark.parametrize("name", DRAWING)
def test_how_it_is_drawn_is_part_of_a_calls_key(name: str) -> None:
    plain, drawn = (
        chat_call(conversation("user: Hi"), make_tokenizer(), TokenBudget(200), **sampling)
        for sampling in ({}, {name: DRAWING[name]})
    )
    assert plain.key("model") != drawn.key("model")


def test_what_was_asked_of_the_sampling_reaches_it() -> None:
    schema = json.dumps({"type": "object"})
    call = chat_call(
        conversation("user: Hi"),
        make_tokenizer(),
        TokenBudget(200),
        max_output_tokens=9,
        temperature=0.5,
        seed=7,
        stop=["END"],
        json_schema=schema,
        **DRAWING,
    )
    sampling = call.sampling
    assert {name: getattr(sampling, name) for name in DRAWING} == DRAWING
    assert (sampling.max_output_tokens, sampling.temperature, sampling.seed) == (9, 0.5, 7)
    assert (sampling.stop, sampling.json_schema) == (("END",), schema)


def test_the_turns_of_a_conversation_go_to_one_replica() -> None:
    tokenizer, budget = make_tokenizer(), TokenBudget(400)
    first = chat_call(conversation("system: S", "user: Hi"), tokenizer, budget)
    later = chat_call(conversation("system: S", "user: Hi", "assistant: A", "user: B"), tokenizer, budget)
    other = chat_call(conversation("system: S", "user: Hello"), tokenizer, budget)
    assert first.affinity == later.affinity != other.affinity
