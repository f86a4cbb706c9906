"""Splitting loses nothing, is linear, and does not know the question."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunks.split import SMALLEST_CHUNK_TOKENS, Chunk, split_document
from pipeline.documents.document import Document
from pipeline.errors import ContextTooSmall
from tests.factories import fact_document, make_tokenizer

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from(
            ["\n\n", "\n", " ", ". ", "。", "A sentence. ", "x" * 700, "中" * 300, '{"k": "v", ', "\x00", "\ud800"]
        ),
    ),
    max_size=40,
).map("".join)


def split(text: str, chunk_tokens: int = SMALLEST_CHUNK_TOKENS) -> tuple[Document, tuple[Chunk, ...]]:
    document = Document.from_text(text)
    return document, split_document(document, make_tokenizer(), chunk_tokens)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_chunks_rejoin_to_the_document_exactly(text: str) -> None:
    document, chunks = split(text)
    assert "".join(document.slice(chunk.span) for chunk in chunks) == document.text
    assert "".join(document.slice(s.span) for chunk in chunks for s in chunk.sentences) == document.text


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(SMALLEST_CHUNK_TOKENS, 2000))
def test_no_chunk_exceeds_its_size(text: str, chunk_tokens: int) -> None:
    _, chunks = split(text, chunk_tokens)
    assert all(len(chunk.numbered_token_ids) <= chunk_tokens for chunk in chunks)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))


@settings(max_examples=50, deadline=None)
@given(TEXTS)
def test_plain_tokens_decode_to_the_text(text: str) -> None:
    document, chunks = split(text)
    for chunk in chunks:
        assert make_tokenizer().decode(chunk.plain_token_ids) == document.slice(chunk.span)


def test_an_unbroken_run_is_cut_not_dropped() -> None:
    document, chunks = split("中" * 9000)
    assert sum(len(chunk.span) for chunk in chunks) == len(document.text) == 9000


def test_a_chunk_ends_with_a_paragraph_where_one_ends_late_enough() -> None:
    document, chunks = split(fact_document({}).text, 1100)
    assert all(document.slice(chunk.span).endswith("\n\n") for chunk in chunks[:-1])


def test_records_on_one_line_are_cut_between_records() -> None:
    pairs = ", ".join(f'"key{i:04d}": "value{i:04d}"' for i in range(400))
    document, chunks = split(pairs)
    for chunk in chunks:
        for sentence in chunk.sentences:
            assert document.slice(sentence.span).lstrip().startswith('"key')


def test_a_runt_is_balanced_with_the_chunk_before() -> None:
    words = "word and word again, so it goes. " * 200
    _, chunks = split(words, 1000)
    sizes = [len(chunk.numbered_token_ids) for chunk in chunks]
    assert min(sizes) >= 250


def test_replicas_share_a_document_evenly_and_the_same_way_each_time() -> None:
    _, chunks = split(fact_document({}).text)
    _, again = split(fact_document({}).text)
    first = chunks[0].affinity
    assert [chunk.affinity for chunk in chunks] == [first + place for place in range(len(chunks))]
    assert [chunk.affinity for chunk in again] == [chunk.affinity for chunk in chunks]
    assert split("Another document. " * 400)[1][0].affinity != first


def test_an_empty_document_has_no_chunks() -> None:
    assert split("")[1] == ()


def test_too_small_a_chunk_is_refused() -> None:
    with pytest.raises(ContextTooSmall, match="512"):
        split("text", 100)


def test_a_line_of_three_megabytes_is_split() -> None:
    started = time.monotonic()
    document, chunks = split("x" * 600_000 + " y" * 1_200_000, 4000)
    assert sum(len(chunk.span) for chunk in chunks) == len(document.text)
    assert time.monotonic() - started < 60, "three megabytes take a second or two; a quadratic split would take an hour"
