"""A person stops a run on real vLLM, writes a finding of their own, and the run goes on from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.documents.sample import bundled_document
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.front_door import ask
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Call, Dispatcher, Outcome, Stage
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.checkpoints import History, RunPaused, StepOptions
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from tests.engine.conftest import Served


@dataclass
class _Recording:
    """Passes calls on to the engine and keeps them: how many map calls a run makes is the model's affair."""

    inner: Dispatcher
    sent: list[Call] = field(default_factory=list)

    @property
    def window(self) -> int:
        return self.inner.window

    async def complete(self, call: Call) -> Outcome:
        self.sent.append(call)
        return await self.inner.complete(call)


async def test_a_run_is_paused_edited_and_resumed_without_a_call_of_its_map(served: Served, tmp_path: Path) -> None:
    document = Document.from_text(bundled_document().text[40_000:46_000], "python-reference")
    quote = document.text[:60]
    journal = Journal(tmp_path / "journal.sqlite")

    engine = _Recording(served.dispatcher())

    def map_calls_sent() -> int:
        return sum(call.stage is Stage.MAP for call in engine.sent)

    async def run(history: History, pause_before: str = "") -> Answer:
        resources = Resources(
            tokenizer=Tokenizer.from_directory(served.model_path),
            budget=TokenBudget(4096),
            dispatcher=JournaledDispatcher(engine, journal, "smollm2-135m"),
            chunk_tokens=700,
            gate=GateSettings(enabled=False),
            calibration=Calibration(keep_probability=0.0),
            steps=StepOptions(pause_before=pause_before, history=history),
        )
        return await ask(document, Request(question="What is this about?", strategy="mapreduce"), resources)

    with pytest.raises(RunPaused) as paused:
        await run(History(run_id="run"), pause_before="reduce")
    paid = map_calls_sent()
    checkpoint = paused.value.checkpoint
    state = json.loads(checkpoint.state)
    state["findings"] = [{"answer": "as I say", "evidence": [quote], "stated_confidence": 5}]
    edited = replace(checkpoint, edited=json.dumps(state))
    answer = await run(History(run_id="run", looked_at=edited.number, edits={edited.number: edited}))
    assert answer.text == "as I say"
    assert [document.slice(evidence.span) for evidence in answer.evidence if evidence.span] == [quote.strip()]
    assert map_calls_sent() == paid >= answer.coverage.chunks > 1
    assert answer.usage[Stage.MAP].calls == 0
    assert answer.usage[Stage.MAP].journal_calls >= answer.coverage.chunks
    assert any("edited manually" in warning for warning in answer.warnings)
