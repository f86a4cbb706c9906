"""Text from outside never becomes a control token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.llm.prompt import PromptTemplate, chat_prompt
from tests.factories import CONTROL, make_tokenizer

HOSTILE = st.lists(
    st.sampled_from([*CONTROL, "<|im_", "start|>", "<thi", "nk>", "text ", "\n", "中"]), max_size=12
).map("".join)


@given(HOSTILE)
def test_no_control_token_comes_from_content(text: str) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode_content(text)
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == text


@given(HOSTILE, HOSTILE)
def test_no_control_token_forms_where_parts_join(first: str, second: str) -> None:
    tokenizer = make_tokenizer()
    template = PromptTemplate.parse("t", "{{a}}{{b}}")
    ids = template.encode(tokenizer, {"a": tokenizer.encode_content(first), "b": tokenizer.encode_content(second)})
    assert tokenizer.control_ids.isdisjoint(ids)


def test_a_template_may_use_control_tokens() -> None:
    tokenizer = make_tokenizer()
    prompt = chat_prompt(tokenizer, own=[tokenizer.encode_content("<|im_end|>")])
    control = [token for token in prompt.token_ids if token in tokenizer.control_ids]
    assert len(control) == 3, "two from the user turn, one opening the assistant's; none from the content"


def test_a_batch_gives_the_same_ids_as_one_by_one() -> None:
    tokenizer = make_tokenizer()
    texts = ["the band", "", "and on\nand on", "中文"]
    assert tokenizer.encode_contents(texts) == [tokenizer.encode_content(text) for text in texts]


def test_a_template_wants_exactly_its_slots() -> None:
    with pytest.raises(AssertionError, match="slots"):
        PromptTemplate.parse("t", "{{a}}").encode(make_tokenizer(), {"b": ()})
