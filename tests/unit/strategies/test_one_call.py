"""Strategies of one call: direct, truncated, and the choice between one call and many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Document
from pipeline.errors import ContextTooSmall, DocumentTooLong, InternalError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Alignment
from pipeline.front_door import ask, plan
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel, seeded_script
from pipeline.run.events import CallEnded, Event, StageStarted
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from pipeline.strategies.truncate import Keep, kept_counts
from tests.factories import fact_document, make_resources, make_tokenizer

FACT = "The lighthouse keeper was called Odalys Brand."
QUESTION = "What was the lighthouse keeper called?"
SHORT = fact_document({3: FACT}, paragraphs=6)
LONG = fact_document({0: FACT}, paragraphs=40)


def reply(**fields: object) -> Reply:
    return Reply(text=json.dumps({"sentences": [], "explanation": "stated", "confidence": 5, **fields}))


def seeing(call: Call, times: int) -> Reply:
    """Answers if the fact is in the prompt, pointing at a wrong sentence."""
    text = make_tokenizer().decode(call.prompt.token_ids)
    return reply(answer="Odalys Brand" if FACT in text else "", sentences=[1])


def on(script: Script, **settings: object) -> tuple[ScriptedModel, Resources]:
    model = ScriptedModel(script)
    return model, make_resources(dispatcher=InlineDispatcher(model, sleep=lambda _: asyncio.sleep(0)), **settings)  # type: ignore[arg-type]


def ask_for(strategy: str, **fields: object) -> Request:
    return Request(question=QUESTION, strategy=strategy, **fields)  # type: ignore[arg-type]


async def test_direct_is_one_call_whose_evidence_stands_in_the_document() -> None:
    model, resources = on(seeing)
    answer = await ask(SHORT, ask_for("direct"), resources)
    assert (answer.text, answer.confidence, len(model.calls)) == ("Odalys Brand", 4, 1)
    [evidence] = answer.evidence
    assert evidence.span is not None
    assert evidence.quote == SHORT.slice(evidence.span)
    assert FACT in evidence.quote
    assert evidence.alignment is Alignment.ANSWER
    assert answer.coverage.share == 1.0


async def test_the_plan_of_a_direct_call_is_exact() -> None:
    model, resources = on(seeing)
    planned = plan(SHORT, ask_for("direct"), resources)
    await ask(SHORT, ask_for("direct"), resources)
    assert (planned.calls, planned.depth, planned.chunks) == (1, 1, 1)
    assert planned.prompt_tokens == len(model.calls[0].prompt.token_ids)


async def test_a_direct_call_that_fails_is_a_failed_chunk_and_no_answer() -> None:
    _, resources = on(lambda call, times: Reply(error=InternalError("poison")))
    answer = await ask(SHORT, ask_for("direct"), resources)
    assert not answer.found
    assert answer.coverage.share == 0
    [failed] = answer.coverage.failed_chunks
    assert (failed.stage, failed.message) == (Stage.DIRECT, "poison")


@pytest.mark.parametrize("usable", [True, False])
async def test_malformed_output_is_asked_for_once_more(usable: bool) -> None:
    model, resources = on(
        lambda call, times: reply(answer="x") if usable and call.sampling.temperature else Reply(text="no json")
    )
    answer = await ask(SHORT, ask_for("direct"), resources)
    assert len(model.calls) == 2
    assert answer.found is usable
    assert len(answer.coverage.failed_chunks) == (not usable)


@pytest.mark.parametrize(
    "text", ["The document does not answer the question.", "document does not answer the question"]
)
async def test_the_prompts_own_words_for_no_answer_are_none(text: str) -> None:
    model, resources = on(lambda call, times: reply(answer=text, sentences=[1]))
    answer = await ask(SHORT, ask_for("direct"), resources)
    assert (answer.found, answer.text) == (False, "")
    assert text.casefold().strip(".") in make_tokenizer().decode(model.calls[0].prompt.token_ids).casefold()


async def test_an_empty_answer_means_that_the_document_does_not_say() -> None:
    _, resources = on(lambda call, times: reply(answer=""))
    answer = await ask(SHORT, ask_for("direct"), resources)
    assert (answer.found, answer.evidence, answer.coverage.failed_chunks) == (False, (), ())


async def test_a_document_too_long_is_refused_with_the_number_of_tokens() -> None:
    model, resources = on(seeing)
    with pytest.raises(DocumentTooLong, match=r"is [\d,]+ tokens too long"):
        await ask(LONG, ask_for("direct"), resources)
    assert model.calls == []


async def test_direct_tells_its_stage_so_that_progress_shows() -> None:
    events: list[Event] = []
    _, resources = on(seeing, emit=events.append)
    await ask(SHORT, ask_for("direct"), resources)
    assert [e.stage for e in events if isinstance(e, StageStarted | CallEnded)] == [Stage.DIRECT, Stage.DIRECT]


async def test_direct_chooses_among_the_options_and_summarizes_in_prose() -> None:
    model, resources = on(lambda call, times: reply(answer="B"))
    request = ask_for("direct", task="multiple_choice", choices=("Perrin", "Odalys"))
    assert (await ask(SHORT, request, resources)).text == "B"
    await ask(SHORT, ask_for("direct", task="summarization"), resources)
    chosen, prose = (json.loads(call.sampling.json_schema or "")["properties"] for call in model.calls)
    assert chosen["answer"]["enum"] == ["A", "B"]
    assert list(prose) == ["sentences", "answer"]


def test_a_control_token_in_the_document_is_ordinary_text() -> None:
    _, resources = on(seeing)
    document = Document.from_text("Before. <|im_end|> After.")
    plain = plan(Document.from_text("Before. After."), ask_for("direct"), resources)
    hostile = plan(document, ask_for("direct"), resources)
    assert hostile.prompt_tokens > plain.prompt_tokens + 5, "spelled out, not one token"


@pytest.mark.parametrize(
    ("strategy", "facts", "found"),
    [
        ("truncate", {0: FACT}, True),
        ("truncate", {20: FACT}, False),
        ("truncate", {39: FACT}, True),
        ("truncate_head", {0: FACT}, True),
        ("truncate_head", {39: FACT}, False),
        ("truncate_tail", {0: FACT}, False),
        ("truncate_tail", {39: FACT}, True),
    ],
)
async def test_truncation_keeps_the_part_it_says(strategy: str, facts: dict[int, str], found: bool) -> None:
    document = fact_document(facts, paragraphs=40)
    model, resources = on(seeing)
    answer = await ask(document, ask_for(strategy), resources)
    assert answer.found is found
    assert len(model.calls) == 1
    assert all(e.span and e.quote == document.slice(e.span) for e in answer.evidence)


async def test_truncation_fills_the_window_and_says_what_it_left_out() -> None:
    model, resources = on(seeing)
    answer = await ask(LONG, ask_for("truncate"), resources)
    longest_sentence_tokens = 300
    assert 8192 - 2 * longest_sentence_tokens < model.calls[0].cost_tokens() <= 8192
    coverage = answer.coverage
    assert coverage.document_tokens == plan(LONG, ask_for("truncate"), resources).document_tokens
    assert coverage.share == pytest.approx(1 - coverage.tokens_left_out / coverage.document_tokens)
    assert 0.2 < coverage.share < 0.5
    [warning] = answer.warnings
    assert f"{coverage.tokens_left_out:,} of {coverage.document_tokens:,} tokens" in warning
    assert f"Here {coverage.tokens_left_out} tokens" in make_tokenizer().decode(model.calls[0].prompt.token_ids)


async def test_a_document_that_fits_is_not_truncated() -> None:
    model, resources = on(seeing)
    answer = await ask(SHORT, ask_for("truncate"), resources)
    await ask(SHORT, ask_for("direct"), resources)
    assert model.calls[0] == model.calls[1]
    assert (answer.coverage.share, answer.warnings) == (1.0, ())


async def test_a_quote_never_spans_the_gap() -> None:
    def naming_all(call: Call, times: int) -> Reply:
        schema = json.loads(call.sampling.json_schema or "")
        most = schema["properties"]["sentences"]["items"]["maximum"]
        return reply(answer="everything", sentences=list(range(1, most + 1)))

    _, resources = on(naming_all)
    answer = await ask(LONG, ask_for("truncate"), resources)
    head, tail = answer.evidence
    assert head.span is not None
    assert tail.span is not None
    assert head.span.end < len(LONG.text) / 2 < tail.span.start


async def test_truncation_in_a_window_without_room_is_refused() -> None:
    _, resources = on(seeing, context_tokens=2000)
    with pytest.raises(ContextTooSmall):
        await ask(LONG, ask_for("truncate"), resources)


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(0, 600), st.sampled_from(Keep))
def test_kept_sentences_fit_and_one_more_would_not(sizes: Sequence[int], room: int, keep: Keep) -> None:
    head, tail = kept_counts(sizes, room, keep)
    kept = [*sizes[:head], *sizes[len(sizes) - tail :]]
    assert head + tail <= len(sizes)
    assert sum(kept) <= room
    if head + tail < len(sizes):
        following = sizes[head] if keep is Keep.HEAD else sizes[-tail - 1]
        assert sum(kept) + following > room


@pytest.mark.parametrize(
    ("document", "task", "chosen", "because"),
    [
        (SHORT, "question_answering", "direct", "fit one call"),
        (SHORT, "summarization", "direct", "fit one call"),
        (LONG, "question_answering", "mapreduce", "do not fit one call"),
        (LONG, "summarization", "summarize", "for the task summarization"),
    ],
)
def test_auto_chooses_by_length_and_task_and_says_why(document: Document, task: str, chosen: str, because: str) -> None:
    _, resources = on(seeing)
    planned = plan(document, ask_for("auto", task=task), resources)
    assert planned.strategy == chosen
    assert because in planned.reason


def test_auto_reads_in_chunks_what_chunks_were_asked_for() -> None:
    planned = plan(SHORT, ask_for("auto", chunk_tokens=600), on(seeing)[1])
    assert (planned.strategy, planned.chunks > 1) == ("mapreduce", True)


@pytest.mark.parametrize("document", [SHORT, LONG])
async def test_auto_answers_as_the_strategy_it_chose(document: Document) -> None:
    async def answered(strategy: str) -> Answer:
        _, resources = on(seeded_script(4))
        return await ask(document, ask_for(strategy), resources)

    chosen = plan(document, ask_for("auto"), on(seeing)[1]).strategy
    assert (await answered("auto")).text == (await answered(chosen)).text
