"""A located quote is the document's own text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunks.split import Chunk, split_document
from pipeline.documents.document import Document
from pipeline.findings.evidence import find_answer, locate_quote, point_to_sentences
from pipeline.findings.finding import Alignment
from pipeline.text import words_of
from tests.factories import make_tokenizer

TEXT = (
    "The committee met on 4 May. It “approved” the *new* bridge — at a cost of 1,200 crowns — after\n   long debate. "
    "Nobody spoke against it. The treasurer, however, asked for a second opinion on the foundations."
)


def one_chunk(text: str) -> tuple[Document, Chunk]:
    document = Document.from_text("Before the part. " * 4 + "\n\n" + text)
    [chunk] = split_document(document, make_tokenizer(), 4000)
    return document, chunk


@pytest.mark.parametrize(
    ("quote", "alignment"),
    [
        ("It “approved” the *new* bridge", Alignment.EXACT),
        ('it "approved" the new bridge - at a cost of 1,200 crowns - after long debate.', Alignment.NORMALISED),
        ("The treasurer however asked for a second opinon on the foundations", Alignment.FUZZY),
        ("The mayor resigned in anger over the harbour dues.", Alignment.UNLOCATED),
        ("", Alignment.UNLOCATED),
    ],
)
def test_quotes_are_found_as_well_as_they_can_be(quote: str, alignment: Alignment) -> None:
    document, chunk = one_chunk(TEXT)
    evidence = locate_quote(document, chunk, quote)
    assert evidence.alignment is alignment
    if evidence.span is not None:
        assert evidence.quote == document.slice(evidence.span)


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=300), st.data())
def test_any_piece_of_the_text_is_located(text: str, data: st.DataObject) -> None:
    document, chunk = one_chunk(text)
    start = data.draw(st.integers(0, len(document.text) - 1))
    end = data.draw(st.integers(start, len(document.text)))
    evidence = locate_quote(document, chunk, document.text[start:end])
    if document.text[start:end].strip():
        assert evidence.alignment is Alignment.EXACT
        assert evidence.span is not None
        assert evidence.quote == document.slice(evidence.span)


@given(st.lists(st.integers(-3, 30), max_size=6))
def test_pointers_reach_only_sentences_that_exist(numbers: list[int]) -> None:
    document, chunk = one_chunk(TEXT)
    for evidence in point_to_sentences(document, chunk, numbers):
        assert evidence.span is not None
        assert evidence.quote == document.slice(evidence.span)
        assert evidence.quote == evidence.quote.strip()


def test_neighbouring_sentences_become_one_quote() -> None:
    document, chunk = one_chunk(
        "One sentence that is long enough to stand alone by itself, more than a hundred and "
        "twenty characters of it, to be sure. " * 3
    )
    assert len(point_to_sentences(document, chunk, [2, 3])) == 1
    assert len(point_to_sentences(document, chunk, [1, 3])) == 2


def test_the_sentence_that_holds_the_answer_is_found_by_its_company() -> None:
    filler = "The harbour was quiet that morning and the boats lay still, as they had for a week or more by then. " * 3
    document, chunk = one_chunk(
        f"{filler}\n\nThe viaduct was opened in 1907 by the mayor.\n\n{filler}\n\nThe organ was repaired in 1907."
    )
    evidence = find_answer(document, chunk, "1907", "When was the viaduct opened?")
    assert evidence is not None
    assert evidence.span is not None
    assert evidence.quote == document.slice(evidence.span) == "The viaduct was opened in 1907 by the mayor."
    assert find_answer(document, chunk, "1908", "When was the viaduct opened?") is None
    assert find_answer(document, chunk, "190", "When was the viaduct opened?") is None, "whole words only"
    assert find_answer(document, chunk, "", "When was the viaduct opened?") is None


def test_numbers_are_compared_without_their_separators() -> None:
    assert words_of("63,020 marks") == words_of("63020 Marks") == ["63020", "marks"]
    assert words_of("versions 3.6, 3.7") == ["versions", "3", "6", "3", "7"]
    assert words_of("灯塔看守") == ["灯塔", "塔看", "看守"]
    assert words_of("हिन्दी भाषा") == ["हिन्दी", "भाषा"], "with their vowel signs"
    assert words_of("العَرَبِيَّة") == ["العَرَبِيَّة"]
    assert words_of("ไทย") == ["ไท", "ทย"]
    assert words_of("snake_case naïve") == ["snake", "case", "naïve"]
