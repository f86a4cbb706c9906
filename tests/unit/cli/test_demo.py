"""The demo's choices and its honesty; the whole of it runs in tests/engine."""

import pytest

from pipeline.documents.document import Document, Span
from pipeline.documents.sample import bundled_document
from pipeline.findings.answer import Answer, Coverage
from pipeline.findings.finding import Alignment, Evidence
from serving.cli import demo
from serving.cli.demo import QUESTIONS, choose_part, quote_check


class EveryFourCharacters:
    """Counts about as a tokenizer of English does."""

    def count(self, text: str) -> int:
        return len(text) // 4


class Model:
    tokenizer = EveryFourCharacters()


@pytest.mark.parametrize("speed", [31.0, 44.0, 70.0, 110.0, 200.0, 500.0])
def test_a_slow_machine_reads_a_part_with_two_questions_in_it_and_says_so(speed: float) -> None:
    said: list[str] = []
    part = choose_part(Model(), bundled_document(), speed, said.append)  # type: ignore[arg-type]
    assert part is not None
    tokens = EveryFourCharacters().count(part.text)
    assert sum(question.stated in part.text for question in QUESTIONS) >= 2
    assert tokens / speed <= demo.MAX_READING_SHARE * demo.MAX_S, "never planned for more than ten minutes"
    assert tokens > 8192
    assert "make demo FULL=1" in said[0]
    assert f"{tokens:,}" in said[0]


@pytest.mark.parametrize("speed", [0.5, 3.0, 25.0])
def test_a_machine_that_cannot_read_more_than_a_context_says_what_to_do_instead(speed: float) -> None:
    said: list[str] = []
    assert choose_part(Model(), bundled_document(), speed, said.append) is None  # type: ignore[arg-type]
    assert "LONGFOLD_MODEL=smollm2-135m make demo" in said[0]
    assert "longfold doctor" in said[0]


def test_a_fast_machine_reads_everything() -> None:
    document = bundled_document()
    assert choose_part(Model(), document, 10_000.0, lambda _: None) is document  # type: ignore[arg-type]


def test_every_question_is_answered_by_the_whole_document() -> None:
    text = bundled_document().text
    for question in QUESTIONS:
        assert question.stated in text
        assert question.expected in text[text.index(question.stated) - 100 : text.index(question.stated) + 100]


def test_quotes_are_checked_against_the_document_and_not_believed() -> None:
    document = Document.from_text("one two three")

    def evidence(quote: str, span: Span | None) -> Evidence:
        return Evidence(quote=quote, chunk_index=0, span=span, alignment=Alignment.EXACT)

    quotes = (evidence("two", Span(4, 7)), evidence("six", Span(8, 11)), evidence("gone", None))
    answer = Answer(
        text="2", explanation="", found=True, confidence=5, probability=1.0, evidence=quotes,
        coverage=Coverage(chunks=1, chunks_read=1, chunks_extracted=1),
    )  # fmt: skip
    assert quote_check(answer, document).startswith("1 of 3 quotes")
