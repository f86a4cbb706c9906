"""Findings that contradict each other are compared two by two, whatever place they are shown in."""

from __future__ import annotations

import json

import pytest

from pipeline.errors import InternalError
from pipeline.findings.finding import Finding
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script
from pipeline.mapreduce.conflicts import CALLS_PER_RIVAL, MAX_RIVALS, competing_findings
from pipeline.mapreduce.reduce import reduce_findings
from tests.factories import make_collapse, make_finding, make_tokenizer

WEIGHED = Reply(text=json.dumps({"findings": [1], "explanation": "weighed", "answer": "both of them"}))


def comparing(believed: str = "", *, place_nats: float = 5.0, compatible: bool = False) -> Script:
    """Prefers the text that holds `believed` by a tenth of a nat, and whatever stands first by far more."""

    def script(call: Call, times: int) -> Reply:
        if call.sampling.choices == ("A", "B"):
            text = make_tokenizer().decode(call.prompt.token_ids)
            first, second = text.partition("Text A:")[2].split("Text B:")
            liked = 0.1 if believed in first else -0.1 if believed in second else 0.0
            return Reply(choice_logprobs=(place_nats + liked, 0.0))
        if call.sampling.choices:
            return Reply(choice_logprobs=(1.0, 0.0) if compatible else (-1.0, 0.0))
        return WEIGHED

    return script


ADA, BO = make_finding(3, "Ada Quill", 0.6), make_finding(7, "Bo Lind", 0.55)


@pytest.mark.parametrize("place_nats", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize(("believed", "winner", "loser"), [("quote 3", ADA, BO), ("quote 7", BO, ADA)])
async def test_the_text_decides_and_not_its_place(
    believed: str, winner: Finding, loser: Finding, place_nats: float
) -> None:
    collapse, model = make_collapse(comparing(believed, place_nats=place_nats), 10)
    conclusion = await reduce_findings([ADA, BO], collapse)
    assert (conclusion.text, conclusion.probability) == (winner.answer, winner.probability)
    assert conclusion.conflicts == (loser,)
    assert len(model.calls) == CALLS_PER_RIVAL
    assert {call.stage for call in model.calls} == {Stage.REDUCE}


async def test_a_settled_rival_is_shown_even_if_it_is_improbable() -> None:
    weak = [make_finding(3, "Ada Quill", 0.3), make_finding(7, "Bo Lind", 0.2)]
    collapse, _ = make_collapse(comparing("quote 7"), 10)
    conclusion = await reduce_findings(weak, collapse)
    assert (conclusion.text, conclusion.conflicts) == ("Bo Lind", (weak[0],))


async def test_what_can_be_true_together_is_weighed_in_one_call() -> None:
    collapse, model = make_collapse(comparing("quote 3", compatible=True), 10)
    assert (await reduce_findings([ADA, BO], collapse)).text == "both of them"
    assert len(model.calls) == CALLS_PER_RIVAL + 1


async def test_settling_can_be_left_out() -> None:
    collapse, model = make_collapse(comparing("quote 3"), 10)
    assert (await reduce_findings([ADA, BO], collapse, settling=False)).text == "both of them"
    assert len(model.calls) == 1


async def test_the_winner_meets_the_next_rival() -> None:
    findings = [make_finding(index, f"Answer {index}", 0.5 + index / 100) for index in range(6)]
    collapse, model = make_collapse(comparing("quote 3"), 10)
    assert (await reduce_findings(findings, collapse)).text == "Answer 3"
    assert len(model.calls) == CALLS_PER_RIVAL * MAX_RIVALS


async def test_a_comparison_that_fails_is_told_and_the_findings_are_weighed() -> None:
    def failing(call: Call, times: int) -> Reply:
        return Reply(error=InternalError("poison")) if call.sampling.choices else WEIGHED

    collapse, _ = make_collapse(failing, 10)
    conclusion = await reduce_findings([ADA, BO], collapse)
    assert conclusion.text == "both of them"
    assert "could not be compared: poison" in conclusion.warning


def test_rivals_say_something_else_come_close_and_stand_in_the_document() -> None:
    same = make_finding(1, "Ada  QUILL", 0.59)
    nowhere = Finding(
        chunk_indices=(2,), evidence=(), rationale="", answer="Cy Moor", stated_confidence=5, probability=0.6
    )
    far = make_finding(4, "Di Nye", 0.1)
    again = make_finding(8, "bo lind", 0.5)
    assert competing_findings(ADA, [ADA, same, nowhere, far, again, BO]) == [BO]
    assert competing_findings(nowhere, [nowhere, ADA]) == []
    certain = make_finding(5, "Ed Oak", 1.0)
    assert competing_findings(certain, [certain, ADA]) == []
