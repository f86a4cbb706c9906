"""Bodies of OpenAI's dialect: what is used, what is ignored, and what is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving.api.errors import ApiError
from serving.api.openai.attachments import decode_file_data
from serving.api.openai.fields import CHAT_DEFAULTS, ChatBody, GivenFile, ResponseBody, parse_body
from serving.api.openai.input import ParsedRequest, read_chat, read_response
from serving.api.openai.models import choose_model

HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> ParsedRequest:
    return read_chat(parse_body(ChatBody, json.dumps({"model": "auto", "messages": HELLO} | fields).encode()))


def response(**fields: Any) -> ParsedRequest:
    return read_response(parse_body(ResponseBody, json.dumps({"model": "auto", "input": "Hello"} | fields).encode()))


def refused(ask: Any, **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(ApiError) as refusal:
        ask(**fields)
    assert refusal.value.status_code == 400
    assert not refusal.value.retry
    return refusal.value.param, refusal.value.code


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logit_bias": {"7": 1}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{}]}, "functions"),
        ({"web_search_options": {}}, "web_search_options"),
    ],
)
def test_what_chat_does_not_support_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refused(chat, **fields) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"conversation": "conv_1"}, "conversation"),
    ],
)
def test_what_responses_do_not_support_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refused(response, **fields) == (param, "unsupported_parameter")


@pytest.mark.parametrize("name", CHAT_DEFAULTS)
def test_a_default_that_asks_for_nothing_is_accepted(name: str) -> None:
    for value in [*CHAT_DEFAULTS[name], None]:
        assert chat(**{name: value}).ignored == ()


def test_true_is_not_one() -> None:
    assert refused(chat, n=True) == ("n", "unsupported_parameter")
    assert refused(chat, longfold={"options": {"use_scores": 0}}) == ("longfold.options.use_scores", "invalid_value")


def test_to_json_five_point_nought_is_an_integer() -> None:
    assert chat(max_tokens=5.0, longfold={"limits": {"calls": 3.0}}).sampling == {"max_output_tokens": 5}
    assert refused(chat, max_tokens=5.5)[0] == refused(chat, max_tokens="5")[0] == "max_tokens"


def test_what_a_client_leaves_null_is_not_asked_for() -> None:
    assert chat(a_field_of_next_year=None).ignored == ()


def test_hints_are_accepted_and_told_as_ignored() -> None:
    assert response(include=["reasoning.encrypted_content"]).ignored == ("include",)
    assert response(include=[]).ignored == ()
    assert chat(user="u", store=True, service_tier="auto").ignored == ("user", "store", "service_tier")
    assert response(reasoning={"effort": "low"}, truncation="auto").ignored == ("reasoning", "truncation")


def test_an_unknown_field_is_refused_and_not_silently_dropped() -> None:
    assert refused(chat, max_token=5) == ("max_token", "unknown_parameter")
    assert refused(chat, longfold={"chunk_tokens": 5}) == ("longfold.chunk_tokens", "unknown_parameter")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"temperature": 9}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"longfold": {"limits": {"calls": 0}}}, "longfold.limits.calls"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(fields: dict[str, Any], param: str) -> None:
    assert refused(chat, **fields) == (param, "invalid_value")


def test_a_body_that_is_no_json_is_the_callers_fault() -> None:
    with pytest.raises(ApiError, match="not JSON"):
        parse_body(ChatBody, b'{"model": ')


def test_parts_of_other_kinds_and_roles_are_refused_with_their_place() -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    assert refused(chat, messages=image) == ("messages[0].content[0].type", "unsupported_parameter")
    assert refused(chat, messages=[{"role": "tool", "content": "x"}])[0] == "messages[0].role"
    both = [{"role": "user", "content": [{"type": "file", "file": {}}]}]
    assert refused(chat, messages=both)[0] == "messages[0].content[0].file"
    url = [{"role": "user", "content": [{"type": "input_file", "file_url": "http://127.0.0.1/"}]}]
    assert refused(response, input=url)[0] == "input[0].content[0].file_url"
    assert refused(response, input=[{"type": "function_call_output"}])[0] == "input[0].type"
    assert refused(response, input=[{"type": "input_text", "text": 5}])[0] == "input[0].text"
    assert refused(response, input=[{"type": "message", "content": "x"}])[0] == "input[0].role"


def test_a_request_without_a_message_is_refused_and_an_empty_message_is_one() -> None:
    for nothing in ([], [{"type": "reasoning", "id": "rs_1", "summary": []}]):
        assert refused(response, input=nothing) == ("input", "empty_input")
    assert [part.text for part in response(input=[{"role": "user", "content": []}]).parts] == [""]
    assert [part.text for part in chat(messages=[{"role": "user", "content": []}]).parts] == [""]


def test_what_a_model_thought_before_is_not_read() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    parsed = response(input=[thought, {"role": "user", "content": "Hello"}])
    assert [(part.role, part.text) for part in parsed.parts] == [("user", "Hello")]


def test_sampling_of_a_conversation_is_read_under_both_names_of_the_length() -> None:
    parsed = chat(max_tokens=5, temperature=0.5, stop="x", seed=7)
    assert parsed.sampling == {"max_output_tokens": 5, "temperature": 0.5, "stop": ["x"], "seed": 7}
    assert parsed.sampling_params == ("max_tokens", "temperature", "stop", "seed")
    assert chat(max_completion_tokens=6).sampling == {"max_output_tokens": 6}
    assert chat(max_completion_tokens=6, max_tokens=7).sampling == {"max_output_tokens": 6}


NARROW = {"top_p": 0.9, "top_k": 40, "min_p": 0.1}
PENALTIES = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1}


@pytest.mark.parametrize("ask", [chat, response])
def test_who_narrows_the_draw_wants_one(ask: Any) -> None:
    assert ask(**NARROW, **PENALTIES).sampling == {"temperature": 1.0, **NARROW, **PENALTIES}
    assert ask(**NARROW, temperature=0).sampling == NARROW
    assert ask(**PENALTIES).sampling == PENALTIES
    assert ask(top_p=0.9).sampling_params == ("top_p",)


@pytest.mark.parametrize("ask", [chat, response])
def test_sampling_that_asks_for_nothing_is_nothing(ask: Any) -> None:
    neutral = {"top_p": 1, "top_k": -1, "min_p": 0.0, "presence_penalty": 0, "frequency_penalty": 0}
    parsed = ask(**neutral, repetition_penalty=1.0, temperature=0)
    assert (parsed.sampling, parsed.sampling_params, parsed.ignored) == ({}, (), ())
    assert ask(top_k=0).sampling == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -2},
        {"min_p": -0.1},
        {"presence_penalty": 2.1},
        {"repetition_penalty": 0},
        {"max_tokens": 2**60},
    ],
)
def test_sampling_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    assert refused(chat, **wrong) == (next(iter(wrong)), "invalid_value")


def test_formats_become_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    chat_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    text_format = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    assert json.loads(chat(response_format=chat_format).sampling["json_schema"]) == schema
    assert json.loads(response(text=text_format).sampling["json_schema"]) == schema
    assert json.loads(chat(response_format={"type": "json_object"}).sampling["json_schema"]) == {"type": "object"}
    assert "json_schema" not in chat(response_format={"type": "text"}).sampling
    assert refused(chat, response_format={"type": "xml"})[0] == "response_format.type"
    assert refused(chat, response_format={}) == ("response_format.type", "missing_required_parameter")
    assert refused(chat, response_format={"type": "json_schema"})[0] == "response_format.json_schema"
    assert refused(response, text={"format": {"type": "json_schema", "name": "n"}})[0] == "text.format.schema"
    assert refused(response, text={"format": [None]})[0] == "text.format"
    assert response(text=text_format).echo["text"] == text_format, "it is given back as it came"


def test_parts_of_one_message_become_one_text_for_the_model() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "system", "content": "s"}, {"role": "user", "content": parts}])
    assert asked.messages() == ({"role": "system", "content": "s"}, {"role": "user", "content": "a\nb"})


def test_instructions_of_a_response_are_its_system_message() -> None:
    asked = response(instructions="Be brief.", input=[{"type": "input_text", "text": "Hi"}])
    assert [m["role"] for m in asked.messages()] == ["system", "user"]


def test_a_response_that_is_not_stored_cannot_be_fetched_later() -> None:
    assert refused(response, background=True, store=False)[0] == "store"


def test_file_data_is_base64_plain_or_as_a_data_url() -> None:
    assert decode_file_data(GivenFile(file_data="aGk=", filename="a.pdf")) == b"hi"
    assert decode_file_data(GivenFile(file_data="data:text/plain;base64,aGk=")) == b"hi"
    for broken in ("data:text/plain,hi", "%%%"):
        with pytest.raises(ValueError, match="base64"):
            decode_file_data(GivenFile(file_data=broken))


def test_a_models_name_is_a_strategy_or_the_served_model() -> None:
    assert choose_model("mapreduce:org/small", "org/small").strategy == "mapreduce"
    assert choose_model("Map_Reduce".replace("_", ""), "org/small").id == "mapreduce"
    assert choose_model("org/small", "org/small").strategy == ""
    for unknown in ("gpt-4", "mapreduce:other", "other:org/small", ""):
        with pytest.raises(ApiError, match="mapreduce") as refusal:
            choose_model(unknown, "org/small")
        assert (refusal.value.status_code, refusal.value.param) == (404, "model")
