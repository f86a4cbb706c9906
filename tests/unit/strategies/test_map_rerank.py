"""Map-rerank: the best score wins, and one chunk's bad output costs that chunk only."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.errors import InternalError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Finding
from pipeline.front_door import ask, plan
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from pipeline.run.events import ChunkMapped, Event
from pipeline.run.request import Limits, Request
from pipeline.run.strategy import Resources
from pipeline.strategies.map_rerank import Scored, best_scored
from tests.factories import fact_document, make_resources, make_tokenizer

QUESTION = "Who kept the lighthouse?"
FACTS = {2: "Odalys Brand kept it, 60 of 100.", 7: "Perrin Oake kept it, 90 of 100.", 9: "Wim Dal kept it, 90 of 100."}
DOCUMENT = fact_document(FACTS, paragraphs=12)
_FACT = re.compile(r"(\w+ \w+) kept it, (\d+) of 100")

FINDING = Finding(chunk_indices=(0,), evidence=(), rationale="", answer="it", stated_confidence=3)


def scoring(call: Call, times: int) -> Reply:
    fact = _FACT.search(make_tokenizer().decode(call.prompt.token_ids))
    answer, score = (fact[1], int(fact[2])) if fact else ("", 0)
    return Reply(text=json.dumps({"sentences": [], "answer": answer, "score": score}))


def reranking(**fields: object) -> Request:
    return Request(**{"question": QUESTION, "strategy": "map_rerank", **fields})  # type: ignore[arg-type]


def on(model: ScriptedModel, events: list[Event] | None = None) -> Resources:
    dispatcher = InlineDispatcher(model, sleep=lambda _: asyncio.sleep(0))
    return make_resources(dispatcher=dispatcher, emit=events.append if events is not None else lambda _: None)


async def run(script: Script, **fields: object) -> Answer:
    return await ask(DOCUMENT, reranking(**fields), on(ScriptedModel(script)))


def in_chunk_with(words: str, reply: Reply) -> Script:
    def script(call: Call, times: int) -> Reply:
        return reply if words in make_tokenizer().decode(call.prompt.token_ids) else scoring(call, times)

    return script


@pytest.mark.parametrize("best_first", [True, False])
async def test_the_best_score_wins_and_the_first_of_equals(best_first: bool) -> None:
    answer = await run(scoring, best_first=best_first)
    assert answer.text == "Perrin Oake"
    [evidence] = answer.evidence
    assert evidence.span is not None
    assert FACTS[7] in DOCUMENT.slice(evidence.span) == evidence.quote


async def test_other_likely_answers_are_conflicts() -> None:
    answer = await run(scoring)
    assert {finding.answer for finding in answer.conflicts} == {"Odalys Brand", "Wim Dal"}


async def test_the_plan_is_exact_and_all_calls_may_run_at_once() -> None:
    model = ScriptedModel(scoring)
    planned = plan(DOCUMENT, reranking(), on(model))
    await ask(DOCUMENT, reranking(), on(model))
    assert planned.calls == planned.chunks == len(model.calls)
    assert planned.prompt_tokens == sum(len(call.prompt.token_ids) for call in model.calls)
    assert planned.depth == 1
    assert model.max_running > 1


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(text="no json"), "MalformedOutput"),
        (Reply(text='{"sentences": [], "answer": "Perrin Oake"}'), "MalformedOutput"),
        (Reply(error=InternalError("poison")), "InternalError"),
    ],
)
async def test_a_bad_chunk_costs_that_chunk_only(reply: Reply, error: str) -> None:
    answer = await run(in_chunk_with("Perrin", reply))
    assert answer.text == "Wim Dal"
    assert [failed.error for failed in answer.coverage.failed_chunks] == [error]
    assert answer.warnings


async def test_a_score_of_0_is_no_answer() -> None:
    answer = await run(lambda call, times: Reply(text='{"sentences": [1], "answer": "the sea", "score": 0}'))
    assert (answer.found, answer.text) == (False, "")


async def test_a_limit_reads_the_likeliest_chunks_first() -> None:
    answer = await run(scoring, question="Did Wim Dal keep the lighthouse?", limits=Limits(calls=1))
    assert (answer.text, answer.stopped_by) == ("Wim Dal", "calls")


async def test_every_chunk_is_told_of_once() -> None:
    events: list[Event] = []
    answer = await ask(DOCUMENT, reranking(), on(ScriptedModel(scoring), events))
    told = [event for event in events if isinstance(event, ChunkMapped)]
    assert sorted(event.chunk_index for event in told) == list(range(answer.coverage.chunks))
    assert len([event for event in told if event.finding]) == len(FACTS)


@given(st.lists(st.integers(0, 100)))
def test_ties_go_to_the_first(scores: list[int]) -> None:
    said = [Scored(score=score, finding=FINDING) for score in scores]
    best = best_scored(said)
    assert best is (said[scores.index(max(scores))] if scores else None)
