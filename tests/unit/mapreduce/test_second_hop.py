"""An answer in two places: the part that names the link leads to the part that has the answer."""

from __future__ import annotations

import json
from dataclasses import replace

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import Calibration
from pipeline.front_door import ask
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from pipeline.run.request import Request
from tests.factories import fact_document, make_resources, make_tokenizer

LINK = "The Corvvik expedition was led by the Ingmark guild."
HOP = "The Ingmark guild sits in the town of Saltmere."
QUESTION = "In which town does the guild sit that led the Corvvik expedition?"


def stepwise(*, leads: bool = True) -> Script:
    """Reads like a small model: sees the link as relevant, the other half only once the link is named."""
    tokenizer = make_tokenizer()

    def sentence_number(text: str, fact: str) -> int:
        return int(text[: text.index(fact)].rpartition("[")[2].partition("]")[0])

    def script(call: Call, times: int) -> Reply:
        text = tokenizer.decode(call.prompt.token_ids)
        if call.stage is Stage.SUPPORT:
            return Reply(choice_logprobs=(-0.1, -4.0) if LINK in text and HOP in text and leads else (-4.0, -0.1))
        if call.sampling.choices:
            return Reply(choice_logprobs=(-0.1, -3.0) if LINK in text else (-4.0, -0.1))
        chunk, _, question = text.partition("Question:")
        if HOP in chunk and LINK in question:
            fields = {"sentences": [sentence_number(text, HOP)], "rationale": "sits", "answer": "Saltmere"}
        elif LINK in chunk:
            fields = {"sentences": [sentence_number(text, LINK)], "rationale": "led", "answer": "Ingmark guild"}
        else:
            fields = {"sentences": [1], "rationale": "", "answer": "the harbour"}
        return Reply(text=json.dumps(fields | {"confidence": 5}))

    return script


async def run(script: Script, facts: dict[int, str]) -> tuple[Answer, ScriptedModel, str]:
    model = ScriptedModel(script)
    document = fact_document(facts)
    resources = make_resources(dispatcher=InlineDispatcher(model))
    strict = Calibration(intercept=-3.9, gate=0.7, support=0.8, words=0.4, keep_probability=0.2)
    answer = await ask(
        document, Request(question=QUESTION, strategy="mapreduce"), replace(resources, calibration=strict)
    )
    return answer, model, document.text


async def test_the_link_is_followed_and_both_sentences_are_the_evidence() -> None:
    answer, _, text = await run(stepwise(), {3: LINK, 9: HOP})
    assert answer.text == "Saltmere"
    quotes = [evidence.quote for evidence in answer.evidence]
    assert any(LINK in quote for quote in quotes)
    assert any(HOP in quote for quote in quotes)
    for evidence in answer.evidence:
        assert evidence.span is not None
        assert text[evidence.span.start : evidence.span.end] == evidence.quote


async def test_a_link_that_leads_nowhere_ends_in_not_found_after_one_round() -> None:
    answer, model, _ = await run(stepwise(leads=False), {3: LINK, 9: HOP})
    assert not answer.found
    with_clue = [
        c for c in model.calls if c.stage is Stage.MAP and "Known from" in make_tokenizer().decode(c.prompt.token_ids)
    ]
    assert 1 <= len(with_clue) <= 2, "no more than the gate keeps at least"
    assert answer.coverage.share == 1.0


async def test_a_chunk_as_large_as_the_context_allows_leaves_room_for_the_clue() -> None:
    words = [f"Boat {number}." for number in range(9000)]
    words[500], words[5000] = LINK, HOP
    model = ScriptedModel(stepwise())
    resources = make_resources(dispatcher=InlineDispatcher(model))
    strict = Calibration(intercept=-3.9, gate=0.7, support=0.8, words=0.4, keep_probability=0.2)
    request = Request(question=QUESTION, strategy="mapreduce", chunk_tokens=100_000)
    answer = await ask(Document.from_text(" ".join(words)), request, replace(resources, calibration=strict))
    assert answer.text == "Saltmere"
