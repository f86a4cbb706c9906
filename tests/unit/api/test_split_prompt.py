"""A question and its document in one text, in the shapes that clients send; what has no sign of a question has none."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.api.openai.split_prompt import SplitPrompt, is_request, split_marked, split_written

QUESTION = "Which colour is the door?"
BOOK = "The house stood on a hill.\n\nThe door was green.\n\n" * 50
MAX_CHARS = 2000

TAGGED = f"""### Task
Answer the query from the sources, and cite them as [id] where the <source> tag has an id.

<context>
<source id="1">{BOOK}</source>
<source id="2">The roof is red.</source>
</context>
"""


def split(text: str) -> SplitPrompt | None:
    return split_marked(text, MAX_CHARS) or split_written(text, MAX_CHARS)


@pytest.mark.parametrize(
    "text",
    [
        f"{TAGGED}\n{QUESTION}",
        f"{TAGGED}\n<user_query>\n{QUESTION}\n</user_query>\n",
        f"{TAGGED}\n\nUser question: {QUESTION}\nAnswer:",
        f"<document>{BOOK}</document>{QUESTION}",
        f"{QUESTION}\n<text>\n{BOOK}\n</text>",
    ],
    ids=["after the tags", "in tags of its own", "after the tags with labels", "one line", "before the tags"],
)
def test_what_stands_in_tags_is_the_document(text: str) -> None:
    found = split_marked(text, MAX_CHARS)
    assert found is not None
    assert found.question == QUESTION
    assert "The door was green." in found.document
    assert "### Task" not in found.document
    assert ("cite them" in found.instructions) == text.startswith("###")


@pytest.mark.parametrize(
    "text",
    [
        f"Use what follows to answer.\n\n{BOOK}\n\nQuestion: {QUESTION}\nHelpful Answer:",
        f"{BOOK}\n**Question:** {QUESTION}",
        f"{BOOK}\n## Query: {QUESTION}\n",
        f"You answer questions.\nQuestion: {QUESTION} \nContext: {BOOK} \nAnswer:",
        f"Question: {QUESTION}\n\nRetrieved documents:\n{BOOK}",
        f"Frage: {QUESTION}\nContext: {BOOK}\n\nQuestion: of the book\n\nand so on",
    ],
)
def test_a_label_says_which_line_is_the_question(text: str) -> None:
    found = split_marked(text, MAX_CHARS)
    assert found is not None
    assert found.question == QUESTION
    assert "The door was green." in found.document
    assert "Answer:" not in found.document


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (f"{BOOK}\n\n{QUESTION}", QUESTION),
        (f"{BOOK}\n{QUESTION}", QUESTION),
        (f"{QUESTION}\n\n{BOOK}", QUESTION),
        (f"{BOOK}\n\nSummarise the text above in three sentences.", "Summarise the text above in three sentences."),
        (f"Please list the colours in the following text:\n\n{BOOK}\n\nWho knows?", "Please list the colours in the "),
        (f"{BOOK}\n\nwhat is the colour of the door", "what is the colour of the door"),
        (f"{BOOK}\n\n门是什么颜色？", "门是什么颜色？"),
        (f"请总结下面的文章：\n\n{BOOK}", "请总结下面的文章："),
    ],
)
def test_a_first_or_last_paragraph_that_asks_is_the_question(text: str, question: str) -> None:
    found = split(text)
    assert found is not None
    assert found.question.startswith(question)
    assert "The door was green." in found.document
    assert found.question not in found.document


@pytest.mark.parametrize(
    "text",
    [
        BOOK,
        "word " * 5000,
        f"{BOOK}\n\nWhen he came back, it was dark.",
        f"{BOOK}\n\nDo not use near water.",
        f"{BOOK}\n\n" + "What " + "a long way to say nothing, " * 200 + "?",
        QUESTION,
        f"\n\n{QUESTION}\n\n",
        "",
    ],
)
def test_a_text_that_asks_nothing_has_no_question(text: str) -> None:
    assert split(text) is None


def test_what_reads_like_a_request() -> None:
    asked = ("Who signed?", "can you explain this", "Please summarize.", "TL;DR", "总结一下", "Translate to German: ")
    told = ("You are a helpful assistant.", "Answer in French.", "Use the context.", "Is as it is.", "")
    assert [text for text in (*asked, *told) if is_request(text)] == list(asked)


HOSTILE = [
    "\n" * 200_000,
    " " * 200_000,
    "<context>" * 20_000,
    "Question: " * 20_000,
    "#*> " * 50_000,
    "\n \n" * 70_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_takes_long(text: str) -> None:
    began_s = time.process_time()
    split(f"a{text}a")
    assert time.process_time() - began_s < 1


PIECES = [
    "<context>",
    "</context>",
    "Question: ",
    "Context:",
    "Answer:",
    "Who?",
    "\n",
    "\n\n",
    " ",
    "word",
    "<query>",
    "</query>",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example("<query></query><context><context></context>")
def test_question_and_document_are_parts_of_the_text_and_never_empty(text: str) -> None:
    for found in (split_marked(text, 40), split_written(text, 40)):
        if found is not None:
            assert found.question.strip()
            assert found.document.strip()
            assert found.question in text
            assert found.document in text
