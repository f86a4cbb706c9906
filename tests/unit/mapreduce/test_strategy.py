"""The whole pipeline on a model that reads: right answers, nothing lost, failures as values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.retry import RetryPolicy
from pipeline.errors import CallerError, ContextTooSmall, EmptyDocument, InternalError, QuestionTooLong
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.front_door import ask, plan
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel, seeded_script
from pipeline.run.events import CallEnded, ChunkMapped, Event, Finished, Planned, Provisional
from pipeline.run.request import Limits, Request
from pipeline.strategies.reference import read_heading
from tests.factories import fact_document, make_resources, make_tokenizer, reading_script

FACT = "The lighthouse keeper was called Odalys Brand."
QUESTION = "What was the lighthouse keeper called?"
DOCUMENT = fact_document({7: FACT})


def asking(**changes: object) -> Request:
    return Request(**{"question": QUESTION, "strategy": "mapreduce", **changes})  # type: ignore[arg-type]


def reader(**changes: object) -> Script:
    return reading_script(make_tokenizer(), [(FACT, "Odalys Brand")], **changes)  # type: ignore[arg-type]


async def run(
    script: Script, *, events: list[Event] | None = None, model: ScriptedModel | None = None, **request: object
) -> Answer:
    model = model or ScriptedModel(script)
    dispatcher = InlineDispatcher(model, max_calls=2, retry=RetryPolicy(), sleep=lambda _: asyncio.sleep(0))
    resources = make_resources(dispatcher=dispatcher, emit=(events.append if events is not None else lambda _: None))
    return await ask(DOCUMENT, asking(**request), resources)


def failing(script: Script, when: Callable[[Call], bool]) -> Script:
    def scripted(call: Call, times: int) -> Reply:
        return Reply(error=InternalError("poison")) if when(call) else script(call, times)

    return scripted


async def test_the_answer_stands_in_the_document() -> None:
    answer = await run(reader())
    assert (answer.text, answer.found) == ("Odalys Brand", True)
    [evidence] = answer.evidence
    assert evidence.span is not None
    assert evidence.quote == DOCUMENT.slice(evidence.span)
    assert FACT in evidence.quote
    assert answer.coverage.share == 1.0


async def test_only_promising_chunks_are_extracted() -> None:
    answer = await run(reader())
    assert answer.coverage.chunks_extracted < answer.coverage.chunks / 2


async def test_without_a_gate_every_chunk_is_extracted() -> None:
    answer = await run(reader(), use_gate=False)
    assert answer.text == "Odalys Brand"
    assert answer.coverage.chunks_extracted == answer.coverage.chunks
    assert Stage.GATE not in answer.usage


async def test_what_the_document_does_not_say_is_not_found() -> None:
    model = ScriptedModel(reading_script(make_tokenizer(), []))
    answer = await run(model.script, model=model)
    assert (answer.found, answer.text, answer.evidence) == (False, "", ())
    assert all(call.stage is not Stage.REDUCE for call in model.calls), "reduce is never called on nothing"


async def test_nothing_found_means_a_second_look_at_the_likeliest_chunks() -> None:
    answer = await run(reading_script(make_tokenizer(), []))
    kept_at_first = 2
    assert answer.coverage.chunks_extracted > kept_at_first


async def test_a_chunk_that_always_fails_is_reported_and_the_rest_is_read() -> None:
    answer = await run(failing(reader(), lambda call: call.chunk_index == 3 and call.stage is not Stage.SUPPORT))
    assert answer.text == "Odalys Brand"
    [failed] = answer.coverage.failed_chunks
    assert (failed.index, failed.message) == (3, "poison")
    assert answer.coverage.share < 1
    assert any("could not be read" in warning for warning in answer.warnings)


async def test_a_failed_reduce_leaves_the_best_finding_and_says_so() -> None:
    other = "Some say the lighthouse keeper was called Perrin Oake."
    document = fact_document({2: other, 7: FACT})
    script = reading_script(make_tokenizer(), [(FACT, "Odalys Brand"), (other, "Perrin Oake")])
    resources = make_resources(failing(script, lambda call: call.stage is Stage.REDUCE))
    answer = await ask(document, asking(), resources)
    assert answer.text in {"Odalys Brand", "Perrin Oake"}
    assert len(answer.conflicts) == 1
    assert any("last step failed" in warning for warning in answer.warnings)


async def test_malformed_output_is_asked_for_once_more() -> None:
    good = reader()

    def script(call: Call, times: int) -> Reply:
        is_first_map = call.stage is Stage.MAP and call.sampling.temperature == 0
        return Reply(text="no json at all") if is_first_map else good(call, times)

    assert (await run(script)).text == "Odalys Brand"


async def test_a_provisional_answer_comes_before_the_last_chunk_is_read() -> None:
    events: list[Event] = []
    await run(reader(), events=events, use_gate=False)
    kinds = [type(event) for event in events]
    last_map = max(i for i, event in enumerate(events) if isinstance(event, ChunkMapped))
    assert kinds.index(Provisional) < last_map
    provisional = events[kinds.index(Provisional)]
    assert isinstance(provisional, Provisional)
    assert provisional.answer.provisional
    assert provisional.answer.coverage.share < 1
    assert (kinds[0], kinds[-1]) == (Planned, Finished)


async def test_every_chunk_is_counted_once() -> None:
    answer = await run(failing(seeded_script(3), lambda call: call.chunk_index in {1, 5}))
    coverage = answer.coverage
    assert coverage.chunks_read + len(coverage.failed_chunks) == coverage.chunks


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_random_delays_do_not_change_the_answer(seed: int) -> None:
    def answer(delay_s: float) -> Answer:
        script = seeded_script(seed, delay_s=delay_s)
        return asyncio.run(run(script))

    slow, fast = answer(0.004), answer(0.0)
    assert (slow.text, slow.evidence, slow.probability) == (fast.text, fast.evidence, fast.probability)


@pytest.mark.parametrize(
    ("limits", "stopped_by"),
    [(Limits(calls=5), "calls"), (Limits(tokens=4000), "tokens"), (Limits(wall_time_s=0.0), "wall time")],
)
async def test_a_limit_stops_reading_with_what_is_known(limits: Limits, stopped_by: str) -> None:
    answer = await run(reader(), limits=limits)
    assert answer.stopped_by == stopped_by
    assert answer.coverage.share < 1
    assert any("limit" in warning for warning in answer.warnings)


async def test_best_first_finds_the_answer_within_a_limit() -> None:
    answer = await run(reader(), use_gate=False, limits=Limits(calls=3))
    assert answer.text == "Odalys Brand", "the chunk that shares the question's words is sent first"


async def test_cancelling_leaves_no_call_running() -> None:
    started = asyncio.Event()

    def stalling(call: Call, times: int) -> Reply:
        started.set()
        return Reply(stalls=True)

    model = ScriptedModel(stalling)
    task = asyncio.create_task(run(model.script, model=model))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.running == 0


async def test_a_run_that_is_cancelled_begins_no_further_call() -> None:
    model = ScriptedModel(lambda *_: Reply(stalls=True))
    running = asyncio.create_task(run(model.script, model=model, use_gate=False, best_first=False))
    while model.running < 2:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(model.calls) == 2


async def test_every_prompt_fits_the_context() -> None:
    model = ScriptedModel(seeded_script(1))
    resources = make_resources(dispatcher=InlineDispatcher(model), context_tokens=6000)
    for task in ("question_answering", "summarization", "aggregation", "code"):
        await ask(fact_document({7: FACT}, paragraphs=60), asking(task=task), resources)
    assert all(call.cost_tokens() <= 6000 for call in model.calls)
    assert {call.stage for call in model.calls} >= {Stage.GATE, Stage.MAP, Stage.COLLAPSE, Stage.REDUCE}


async def test_the_plan_bounds_the_calls() -> None:
    model = ScriptedModel(seeded_script(1))
    resources = make_resources(dispatcher=InlineDispatcher(model))
    request = asking()
    planned = plan(DOCUMENT, request, resources)
    answer = await ask(DOCUMENT, request, resources)
    assert planned.chunks == answer.coverage.chunks
    assert len(model.calls) <= planned.calls


@pytest.mark.parametrize("paragraphs", [1, 2])
async def test_where_the_gate_keeps_every_chunk_its_score_still_counts(paragraphs: int) -> None:
    """A fitted intercept makes up for the level of the scores: without the gate's, nothing would be kept."""
    model = ScriptedModel(reader())
    fitted = Calibration(intercept=-4.5, gate=0.7, support=0.8, words=0.4, keep_probability=0.5)
    resources = replace(make_resources(dispatcher=InlineDispatcher(model)), calibration=fitted)
    answer = await ask(fact_document({0: FACT}, paragraphs=paragraphs), asking(), resources)
    assert answer.text == "Odalys Brand"
    chunks = answer.coverage.chunks
    assert sum(call.stage is Stage.GATE for call in model.calls) == chunks <= 2


async def test_the_second_question_shares_header_and_chunk_with_the_first() -> None:
    models = [ScriptedModel(reader()), ScriptedModel(reader())]
    for model, question in zip(models, (QUESTION, "How many boats lay in the harbour at noon?"), strict=True):
        await ask(DOCUMENT, asking(question=question), make_resources(dispatcher=InlineDispatcher(model)))
    first, second = (
        {
            call.chunk_index: call.prompt.token_ids[: call.prompt.shared_prefix_tokens]
            for call in model.calls
            if call.stage in {Stage.GATE, Stage.MAP}
        }
        for model in models
    )
    assert first == second


async def test_multiple_choice_answers_with_a_letter() -> None:
    script = reading_script(make_tokenizer(), [(FACT, "B")])
    request = asking(task="multiple_choice", choices=("Perrin", "Odalys"))
    answer = await ask(DOCUMENT, request, make_resources(script))
    assert answer.text == "B"


@pytest.mark.parametrize("task", ["question_answering", "question_answering_zh", "multiple_choice", "retrieval"])
@pytest.mark.parametrize("quotes", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
@pytest.mark.parametrize("brief", [True, False])
async def test_a_rationale_is_asked_for_and_written_only_where_it_is_wanted(
    task: str, quotes: bool, asked: bool | None, brief: bool
) -> None:
    """By the request, else as the model's catalogue entry has it for the task."""
    model = ScriptedModel(reader())
    choices = ("Perrin", "Odalys") if task == "multiple_choice" else ()
    request = asking(task=task, choices=choices, copy_quotes=quotes, use_rationale=asked)
    resources = make_resources(dispatcher=InlineDispatcher(model), gate=GateSettings(enabled=True))
    answer = await ask(DOCUMENT, request, replace(resources, tasks_without_rationale=(task,) if brief else ("code",)))
    maps = [call for call in model.calls if call.stage is Stage.MAP]
    assert maps
    wanted = not brief if asked is None else asked
    for call in maps:
        prompt = make_tokenizer().decode(call.prompt.token_ids)
        assert ["rationale" in text for text in (prompt, call.sampling.json_schema or "")] == [wanted] * 2
        assert '"confidence"' in prompt
    assert answer.found


async def test_copied_quotes_are_located() -> None:
    def script(call: Call, times: int) -> Reply:
        base = reader()(call, times)
        if call.stage is not Stage.MAP or '"Odalys' not in base.text:
            return base if call.stage is not Stage.MAP else Reply(text='{"quotes":[],"rationale":"","answer":""}')
        return Reply(text='{"quotes":["the lighthouse  keeper was called *Odalys Brand*."],"answer":"Odalys Brand"}')

    answer = await run(script, copy_quotes=True)
    assert answer.evidence[0].quote == FACT


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(question="  "), CallerError),
        (Request(question="word " * 4000), QuestionTooLong),
        (Request(question="q", task="no such task"), CallerError),
        (Request(question="q", strategy="no such strategy"), CallerError),
        (Request(question="q", task="multiple_choice"), CallerError),
        (Request(question="q", choices=("a", "b")), CallerError),
    ],
)
async def test_a_bad_request_is_refused_before_any_call(request_: Request, error: type[Exception]) -> None:
    model = ScriptedModel(reader())
    with pytest.raises(error):
        await ask(DOCUMENT, request_, make_resources(dispatcher=InlineDispatcher(model)))
    assert model.calls == []


@pytest.mark.parametrize("context_tokens", [700, 1400, 2600])
async def test_a_context_too_small_is_refused_before_any_call(context_tokens: int) -> None:
    model = ScriptedModel(reader())
    resources = make_resources(dispatcher=InlineDispatcher(model), context_tokens=context_tokens)
    with pytest.raises(ContextTooSmall, match=r"larger context|too small"):
        await ask(DOCUMENT, asking(), resources)
    assert model.calls == []


async def test_a_decisive_finding_stands_without_a_reduce_call() -> None:
    other = "Some say the lighthouse keeper was called Perrin Oake."
    document = fact_document({2: other, 7: FACT})
    facts = [(FACT, "Odalys Brand"), (other, "Perrin Oake")]
    read = reading_script(make_tokenizer(), facts, reduce_answer="Perrin Oake")

    def script(call: Call, times: int) -> Reply:
        if call.stage is Stage.SUPPORT and other in make_tokenizer().decode(call.prompt.token_ids):
            return Reply(choice_logprobs=(-6.0, -0.1))
        return read(call, times)

    model = ScriptedModel(script)
    calibration = Calibration(intercept=-1.0, support=1.0)
    resources = replace(make_resources(dispatcher=InlineDispatcher(model)), calibration=calibration)
    answer = await ask(document, asking(), resources)
    assert answer.text == "Odalys Brand"
    assert all(call.stage is not Stage.REDUCE for call in model.calls)


async def test_a_fitted_model_keeps_what_a_task_without_gate_and_check_finds() -> None:
    calibration = Calibration(intercept=-3.9, gate=0.7, support=0.8, words=0.4, keep_probability=0.2)
    events: list[Event] = []
    resources = make_resources(reader(), emit=events.append)
    answer = await ask(DOCUMENT, asking(task="aggregation"), replace(resources, calibration=calibration))
    assert answer.text == "Odalys Brand"
    assert not any(isinstance(event, Provisional) for event in events), "a part's share is no first answer"


async def test_an_empty_document_is_refused() -> None:
    with pytest.raises(EmptyDocument):
        await ask(replace(DOCUMENT, text=" \n"), Request(question="q"), make_resources(reader()))


async def test_reference_mode_maps_every_chunk_and_finds_the_answer() -> None:
    def script(call: Call, times: int) -> Reply:
        text = make_tokenizer().decode(call.prompt.token_ids)
        if FACT in text or "Odalys" in text:
            return Reply(
                text=f"Extracted Information: {FACT}\nRationale: stated\nAnswer: Odalys Brand\nConfidence Score: 5"
            )
        return Reply(text="Extracted Information: -\nRationale: -\nAnswer: [NO INFORMATION]\nConfidence Score: 0")

    answer = await run(script, strategy="reference")
    assert (answer.text, answer.confidence) == ("Odalys Brand", 5)
    assert Stage.GATE not in answer.usage


@pytest.mark.parametrize(
    "text",
    [
        "Rationale: it is there.\nAnswer: Odalys Brand",
        "**Rationale:** it is there.\n\n**Answer:** Odalys Brand\n\n**Confidence Score:** 5",
        "### Rationale\nIt is there.\n\n### Answer\nOdalys Brand\n### Confidence Score\n5",
        "## Answer:\nOdalys Brand\n\n## **Rationale**\nThe answer is there.",
        "Answer: unclear yet\nRationale: on second thought.\nAnswer: Odalys Brand",
    ],
)
def test_an_answer_of_the_published_schedule_is_read_under_any_form_of_its_heading(text: str) -> None:
    assert read_heading(text, "Answer") == "Odalys Brand"


@pytest.mark.parametrize("structure", [True, False])
@pytest.mark.parametrize("scores", [True, False])
async def test_reference_mode_asks_for_and_explains_only_what_is_switched_on(structure: bool, scores: bool) -> None:
    model = ScriptedModel(lambda call, times: Reply(text=f"Answer: part {call.chunk_index} " + "says so " * 90))
    document, resources = fact_document({}, paragraphs=60), make_resources(dispatcher=InlineDispatcher(model))
    request = Request(question=QUESTION, strategy="reference", use_structure=structure, use_scores=scores)
    answer = await ask(document, request, resources)
    prompts = {call.stage: make_tokenizer().decode(call.prompt.token_ids) for call in model.calls}
    assert prompts.keys() == {Stage.MAP, Stage.COLLAPSE, Stage.REDUCE}
    assert ["Extracted Information" in prompts[Stage.MAP], "score" in prompts[Stage.MAP]] == [structure, scores]
    assert [("Rationale" in text, "score" in text) for text in prompts.values()] == [(structure, scores)] * len(prompts)
    assert answer.found


async def test_usage_counts_every_call() -> None:
    events: list[Event] = []
    model = ScriptedModel(seeded_script(2))
    answer = await run(model.script, model=model, events=events)
    assert sum(usage.calls for usage in answer.usage.values()) == len(model.calls)
    assert len([event for event in events if isinstance(event, CallEnded)]) == len(model.calls)


async def test_a_gate_that_is_off_for_a_weak_model_is_not_called() -> None:
    model = ScriptedModel(reader())
    resources = make_resources(dispatcher=InlineDispatcher(model), gate=GateSettings(enabled=False))
    await ask(DOCUMENT, asking(), resources)
    assert all(call.stage is not Stage.GATE for call in model.calls)
