"""Neighbours and headings beside a chunk: assembled from text alone, never more than was said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunks.context import context_tokens, find_headings, gather_context
from pipeline.chunks.split import Chunk, split_document
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Document
from pipeline.front_door import ask, plan
from pipeline.llm.model import Stage
from pipeline.llm.scripted import ScriptedModel
from pipeline.run.request import Request
from tests.factories import fact_document, make_resources, make_tokenizer, reading_script

FILLER = "The boats lay still in the harbour that day. " * 12
BOOK = Document.from_text(
    f"# The coast\n\n{FILLER}\n\n## Lights\n\n{FILLER}\n\n{FILLER}\n\n### Keepers\n\n{FILLER}\n\n"
    f"```\n# no heading\n```\n\n{FILLER}\n\n# Inland\n\n{FILLER}\n\n{FILLER}\n"
)


def gathered(document: Document, tokens: int) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    plain = split_document(document, make_tokenizer(), 600)
    return plain, gather_context(document, plain, make_tokenizer(), tokens)


def shown(chunk: Chunk) -> str:
    return make_tokenizer().decode(chunk.numbered_token_ids)


def test_headings_are_those_the_chunk_stands_under() -> None:
    _, chunks = gathered(BOOK, 40)
    paths = [text.partition("Headings above this part: ")[2].partition(")\n")[0] for text in map(shown, chunks)]
    by_content = {path for chunk, path in zip(chunks, paths, strict=True) if "# " not in BOOK.slice(chunk.span)}
    assert paths[0] == "", "the first chunk begins with its own heading"
    assert by_content <= {"The coast", "The coast > Lights", "The coast > Lights > Keepers", "Inland"}
    assert "The coast > Lights > Keepers" in paths


def test_a_chunk_that_begins_a_chapter_does_not_stand_under_the_last_one() -> None:
    _, chunks = gathered(BOOK, 40)
    for chunk in chunks:
        if BOOK.slice(chunk.span).startswith("# Inland"):
            assert "Headings above" not in shown(chunk)


def test_number_signs_in_code_are_no_headings() -> None:
    assert [heading.title for heading in find_headings(BOOK.text)] == ["The coast", "Lights", "Keepers", "Inland"]


def test_neighbours_are_the_text_on_either_side() -> None:
    document = fact_document({}, paragraphs=6)
    plain, chunks = gathered(document, 120)
    for chunk, with_context in zip(plain, chunks, strict=True):
        text = shown(with_context)
        before, _, after = text.partition(shown(chunk))
        assert ("Just before" in before) is (chunk.index > 0)
        assert ("Just after" in after) is (chunk.index < len(chunks) - 1)
        quoted = before.partition("without numbers: ")[2].rstrip(")\n")
        assert quoted in document.text[: chunk.span.start]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(3, 12))
def test_context_never_takes_more_than_was_said(tokens: int, paragraphs: int) -> None:
    plain, chunks = gathered(fact_document({}, paragraphs=paragraphs), tokens)
    for before, after in zip(plain, chunks, strict=True):
        grown = len(after.numbered_token_ids) - len(before.numbered_token_ids)
        assert grown <= context_tokens(tokens, make_tokenizer())
        assert (after.span, after.sentences) == (before.span, before.sentences)


def test_nothing_is_gathered_unless_it_is_asked_for() -> None:
    assert context_tokens(0, make_tokenizer()) == 0
    assert Request(question="q").gather_tokens == 0


FACT = "The lighthouse keeper was called Odalys Brand."


@pytest.mark.parametrize("tokens", [0, 200])
async def test_evidence_stays_within_the_chunk(tokens: int) -> None:
    document = fact_document({7: FACT}, paragraphs=20)
    model = ScriptedModel(reading_script(make_tokenizer(), [(FACT, "Odalys Brand")]))
    resources = make_resources(dispatcher=InlineDispatcher(model), context_tokens=4000)
    request = Request(question="Who kept the lighthouse?", strategy="mapreduce", gather_tokens=tokens)
    planned = plan(document, request, resources)
    answer = await ask(document, request, resources)
    assert answer.evidence
    assert all(e.span and e.quote == document.slice(e.span) for e in answer.evidence)
    assert all(call.cost_tokens() <= 4000 for call in model.calls)
    gathering = [c for c in model.calls if "Just before" in make_tokenizer().decode(c.prompt.token_ids)]
    assert {call.stage for call in gathering} == ({Stage.GATE, Stage.MAP} if tokens else set())
    assert answer.coverage.chunks == planned.chunks
