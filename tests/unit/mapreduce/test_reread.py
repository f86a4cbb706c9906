"""A reduce that looks again: only in doubt, only where the model says, and never for long."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pipeline.ask import ask, plan
from pipeline.chunks.split import split_document
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Document
from pipeline.errors import InternalError
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import Calibration
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from pipeline.run.request import Request
from tests.factories import fact_document, make_resources, make_tokenizer

VAGUE = "The keeper may have been one Perrin Vale."
FACT = "The lighthouse keeper was called Odalys Brand."
QUESTION = "What was the lighthouse keeper called?"
DOCUMENT = fact_document({2: VAGUE, 8: FACT})
ASKED = Request(question=QUESTION, strategy="mapreduce", chunk_tokens=600, use_gate=False)
SURE, UNSURE, OFF = (-0.05, -5.0), (-0.6, -0.8), (-6.0, -0.01)


def part_with(fact: str) -> int:
    chunks = split_document(DOCUMENT, make_tokenizer(), 600)
    return next(chunk.index + 1 for chunk in chunks if fact in DOCUMENT.slice(chunk.span))


def text_of(call: Call) -> str:
    return make_tokenizer().decode(call.prompt.token_ids)


def is_wish(call: Call) -> bool:
    return "look_for" in (call.sampling.json_schema or "")


def reader(wishes: list[Reply], *, vague: tuple[float, float] = UNSURE) -> Script:
    """Sees only the vague sentence at first, and the fact when told to look for a name."""

    def script(call: Call, times: int) -> Reply:
        text = text_of(call)
        if is_wish(call):
            return wishes.pop(0)
        if call.stage is Stage.SUPPORT:
            return Reply(choice_logprobs=SURE if FACT in text else vague if VAGUE in text else OFF)
        if call.sampling.choices:  # can both be true? which is to be believed?
            return Reply(choice_logprobs=OFF if "Can both" in text else (-0.1, -3.0))
        if call.stage is Stage.REDUCE:
            fields = {"findings": [1], "explanation": "weighed", "answer": "Perrin Vale"}
            return Reply(text=json.dumps(fields))
        seen = FACT if FACT in text and "a full name" in text else VAGUE if VAGUE in text else ""
        number = int(text[: text.index(seen)].rpartition("[")[2].partition("]")[0]) if seen else 1
        answer = {FACT: "Odalys Brand", VAGUE: "Perrin Vale", "": "the harbour"}[seen]
        return Reply(text=json.dumps({"sentences": [number], "rationale": "", "answer": answer, "confidence": 3}))

    return script


def wish(*parts: int, look_for: str = "a full name") -> Reply:
    return Reply(text=json.dumps({"look_for": look_for, "parts": parts}))


async def run(script: Script, rounds: int, document: Document = DOCUMENT) -> tuple[Answer, ScriptedModel]:
    model = ScriptedModel(script)
    strict = Calibration(intercept=-0.5, gate=0.0, support=0.8, words=0.0, keep_probability=0.2)
    resources = replace(make_resources(dispatcher=InlineDispatcher(model)), calibration=strict)
    answer = await ask(document, replace(ASKED, reread_rounds=rounds), resources)
    well_formed = [call for call in model.calls if call.sampling.seed == 0]
    assert len(well_formed) <= plan(document, replace(ASKED, reread_rounds=rounds), resources).calls
    return answer, model


def second_reads(model: ScriptedModel) -> list[int | None]:
    return [call.chunk_index for call in model.calls if call.stage is Stage.MAP and "a full name" in text_of(call)]


async def test_nothing_is_read_again_unless_it_was_asked_for() -> None:
    answer, model = await run(reader([]), 0)
    assert (answer.text, [call for call in model.calls if is_wish(call)]) == ("Perrin Vale", [])


async def test_in_doubt_the_parts_that_the_model_names_are_read_again_for_what_it_names() -> None:
    answer, model = await run(reader([wish(part_with(FACT))]), 2)
    assert second_reads(model) == [part_with(FACT) - 1]
    assert answer.text == "Odalys Brand"
    assert FACT in answer.evidence[0].quote
    assert answer.coverage.share == 1.0


async def test_the_wish_is_made_from_findings_and_the_answer_alone() -> None:
    _, model = await run(reader([wish(part_with(FACT))]), 1)
    [text] = [text_of(call) for call in model.calls if is_wish(call)]
    assert VAGUE in text
    assert "The answer so far: Perrin Vale" in text
    assert "harbour was quiet" not in text


async def test_an_answer_without_doubt_stands() -> None:
    answer, model = await run(reader([], vague=SURE), 2)
    assert (answer.text, second_reads(model)) == ("Perrin Vale", [])


async def test_the_same_wish_twice_ends_the_rounds() -> None:
    elsewhere = wish(part_with(VAGUE))
    answer, model = await run(reader([elsewhere, elsewhere]), 2)
    assert len(second_reads(model)) == 1
    assert answer.text == "Perrin Vale"


async def test_there_are_never_more_than_two_rounds() -> None:
    wishes = [wish(1, look_for=f"a full name, {number}") for number in range(9)]
    _, model = await run(reader(wishes), 9)
    assert len([call for call in model.calls if is_wish(call)]) == 2


@pytest.mark.parametrize(
    "reply",
    [Reply(error=InternalError("poison")), Reply(text="no json"), wish(), wish(999), wish(1, look_for="")],
)
async def test_without_a_wish_the_answer_stands_as_it_was(reply: Reply) -> None:
    answer, model = await run(reader([reply]), 1)
    assert (answer.text, second_reads(model)) == ("Perrin Vale", [])
