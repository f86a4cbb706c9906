"""Refine: the answer so far survives chunks that add nothing, fail, or are cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Span
from pipeline.errors import InternalError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.front_door import ask, plan
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel, seeded_script
from pipeline.run.events import ChunkMapped, Event, Provisional
from pipeline.run.request import Limits, Request
from pipeline.run.strategy import Resources
from pipeline.strategies.refine import Update, apply_update
from pipeline.tasks import load_task
from tests.factories import fact_document, make_resources, make_tokenizer

FIRST, SECOND = "The keeper was called Odalys Brand.", "In 1904 Perrin Oake became the keeper."
QUESTION = "Who kept the lighthouse?"
DOCUMENT = fact_document({2: FIRST, 9: SECOND}, paragraphs=12)


def replies(**fields: object) -> Reply:
    return Reply(text=json.dumps({"sentences": [1], "unchanged": False, "answer": "", "confidence": 5, **fields}))


def text_of(call: Call) -> str:
    return make_tokenizer().decode(call.prompt.token_ids)


def keeper(call: Call, times: int) -> Reply:
    """Completes the answer where a fact stands, and says that it is unchanged elsewhere."""
    part, _, asked = text_of(call).partition("Question about")
    known = "Odalys Brand" if "Odalys Brand" in asked else ""
    if SECOND in part:
        return replies(answer=f"{known}, then Perrin Oake".removeprefix(", "))
    if FIRST in part and not known:
        return replies(answer="Odalys Brand")
    return replies(unchanged=True, sentences=[])


async def run(
    script: Script, *, model: ScriptedModel | None = None, events: list[Event] | None = None, **fields: object
) -> Answer:
    return await ask(DOCUMENT, refining(**fields), on(model or ScriptedModel(script), events))


def on(model: ScriptedModel, events: list[Event] | None = None) -> Resources:
    dispatcher = InlineDispatcher(model, sleep=lambda _: asyncio.sleep(0))
    return make_resources(dispatcher=dispatcher, emit=events.append if events is not None else lambda _: None)


def refining(**fields: object) -> Request:
    return Request(**{"question": QUESTION, "strategy": "refine", **fields})  # type: ignore[arg-type]


def unless(script: Script, when: Callable[[Call], bool], instead: Reply) -> Script:
    return lambda call, times: instead if when(call) else script(call, times)


async def test_the_answer_grows_chunk_by_chunk_with_its_evidence() -> None:
    answer = await run(keeper)
    assert answer.text == "Odalys Brand, then Perrin Oake"
    assert len(answer.evidence) == 2
    assert all(e.span and e.quote == DOCUMENT.slice(e.span) for e in answer.evidence)


async def test_the_plan_is_exact_one_call_per_chunk_each_after_the_other() -> None:
    model = ScriptedModel(keeper)
    planned = plan(DOCUMENT, refining(), on(model))
    await run(keeper, model=model)
    assert planned.calls == planned.depth == planned.chunks == len(model.calls)
    assert model.max_running == 1
    assert sum(len(call.prompt.token_ids) for call in model.calls) <= planned.prompt_tokens


async def test_a_chunk_that_adds_nothing_keeps_the_answer_whatever_it_writes() -> None:
    chatty = unless(
        keeper,
        lambda call: "Answer so far" in text_of(call) and SECOND not in text_of(call),
        replies(unchanged=True, answer="No change is needed."),
    )
    assert (await run(chatty)).text == "Odalys Brand, then Perrin Oake"


async def test_an_empty_answer_does_not_replace_what_is_known() -> None:
    forgetful = unless(
        keeper, lambda call: "Answer so far" in text_of(call) and SECOND not in text_of(call), replies(answer="")
    )
    assert (await run(forgetful)).text == "Odalys Brand, then Perrin Oake"


async def test_an_answer_that_was_cut_off_does_not_replace_a_whole_one() -> None:
    cut = Reply(text='{"sentences": [1], "unchanged": false, "answer": "Odalys', finish_reason="length")
    script = unless(keeper, lambda call: "Answer so far" in text_of(call), cut)
    assert (await run(script)).text == "Odalys Brand"


async def test_a_failing_chunk_is_reported_and_the_answer_passes_it() -> None:
    script = unless(keeper, lambda call: call.chunk_index == 4, Reply(error=InternalError("poison")))
    answer = await run(script)
    assert answer.text == "Odalys Brand, then Perrin Oake"
    [failed] = answer.coverage.failed_chunks
    assert (failed.index, failed.message) == (4, "poison")
    assert answer.coverage.chunks_read == answer.coverage.chunks - 1


async def test_malformed_output_is_asked_for_once_more_and_then_costs_its_chunk() -> None:
    model = ScriptedModel(unless(keeper, lambda call: call.chunk_index == 4, Reply(text="no json")))
    answer = await run(model.script, model=model)
    assert [failed.error for failed in answer.coverage.failed_chunks] == ["MalformedOutput"]
    assert len([call for call in model.calls if call.chunk_index == 4]) == 2
    assert answer.text == "Odalys Brand, then Perrin Oake"


async def test_nothing_anywhere_is_not_found() -> None:
    answer = await run(lambda call, times: replies())
    assert (answer.found, answer.text, answer.evidence) == (False, "", ())


async def test_a_limit_keeps_the_answer_so_far() -> None:
    answer = await run(keeper, limits=Limits(calls=6))
    assert (answer.text, answer.stopped_by) == ("Odalys Brand", "calls")
    assert answer.coverage.chunks_read == 6


async def test_each_change_is_shown_with_how_much_was_read() -> None:
    events: list[Event] = []
    answer = await run(keeper, events=events)
    shown = [event.answer for event in events if isinstance(event, Provisional)]
    assert [one.text for one in shown] == ["Odalys Brand", "Odalys Brand, then Perrin Oake"]
    assert shown[0].coverage.share < shown[1].coverage.share < 1
    assert len([event for event in events if isinstance(event, ChunkMapped)]) == answer.coverage.chunks


async def test_a_summary_is_refined_as_prose_and_every_prompt_fits() -> None:
    model = ScriptedModel(seeded_script(2))
    resources = make_resources(dispatcher=InlineDispatcher(model), context_tokens=4000)
    long = "The story so far. " * 400
    model.script = lambda call, times: replies(answer=long)
    answer = await ask(DOCUMENT, refining(task="summarization"), resources)
    assert answer.found
    assert len(answer.evidence) <= 8
    assert all(call.cost_tokens() <= 4000 for call in model.calls)
    assert all(call.stage is Stage.MAP for call in model.calls)


async def test_options_are_the_only_answers() -> None:
    model = ScriptedModel(lambda call, times: replies(answer="B"))
    answer = await run(model.script, model=model, task="multiple_choice", choices=("Brand", "Oake"))
    assert answer.text == "B"
    schema = json.loads(model.calls[-1].sampling.json_schema or "")
    assert schema["properties"]["answer"]["enum"] == ["A", "B", ""]
    assert list(schema["properties"]).index("unchanged") < list(schema["properties"]).index("answer")


async def test_a_resumed_run_repeats_no_call(tmp_path: object) -> None:
    journal = Journal(tmp_path / "journal.sqlite")  # type: ignore[operator]
    answers = []
    models = [ScriptedModel(seeded_script(5)), ScriptedModel(seeded_script(5))]
    for model, limits in zip(models, (Limits(calls=5), Limits()), strict=True):
        dispatcher = JournaledDispatcher(InlineDispatcher(model), journal, "scripted")
        answers.append(await ask(DOCUMENT, refining(limits=limits), make_resources(dispatcher=dispatcher)))
    assert len(models[0].calls) == 5
    assert len(models[1].calls) == answers[1].coverage.chunks - 5
    journal.close()


def finding(answer: str, at: int, *, truncated: bool = False) -> Finding:
    quote = Evidence(quote="q", chunk_index=at, span=Span(at, at + 1), alignment=Alignment.POINTER)
    return Finding(
        chunk_indices=(at,), evidence=(quote,), rationale="", answer=answer, stated_confidence=5, truncated=truncated
    )


def test_evidence_of_an_overturned_answer_is_dropped() -> None:
    task = load_task("question_answering")
    overturned = apply_update(finding("Odalys", 1), Update(unchanged=False, finding=finding("Perrin", 5)), task)
    assert overturned is not None
    assert [e.chunk_index for e in overturned.evidence] == [5]
    completed = apply_update(finding("Odalys", 1), Update(unchanged=False, finding=finding("Odalys Brand", 5)), task)
    assert completed is not None
    assert [e.chunk_index for e in completed.evidence] == [1, 5]


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["", "x", "y"]), st.booleans())),
    st.sampled_from(["question_answering", "summarization"]),
)
def test_once_there_is_an_answer_it_is_never_lost(steps: list[tuple[bool, str, bool]], task: str) -> None:
    known: Finding | None = None
    for at, (unchanged, answer, truncated) in enumerate(steps):
        before = known
        update = Update(unchanged=unchanged, finding=finding(answer, at, truncated=truncated))
        known = apply_update(known, update, load_task(task))
        assert before is None or known is not None
        assert known is None or known.answer


@pytest.mark.parametrize("gather", [0, 100])
async def test_a_document_of_one_chunk_is_one_call(gather: int) -> None:
    model = ScriptedModel(keeper)
    answer = await ask(fact_document({0: FIRST}, paragraphs=1), refining(gather_tokens=gather), on(model))
    assert (answer.text, len(model.calls)) == ("Odalys Brand", 1)
