"""Every strategy end to end on real vLLM: the small model's answers are useless, what surrounds them must hold."""

from __future__ import annotations

import pytest

from pipeline.documents.document import Document
from pipeline.documents.sample import bundled_document
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.front_door import ask
from pipeline.llm.budget import TokenBudget
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.events import Event, Finished, Planned
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from pipeline.strategies import STRATEGIES
from tests.engine.conftest import Served

SAME_CODE = {"truncate_head", "truncate_tail", "chain_of_agents_both_ways", "chain_of_agents_five_orders"}
"""Further settings of strategies that are run."""


@pytest.mark.parametrize("strategy", sorted(STRATEGIES.keys() - SAME_CODE))
async def test_a_strategy_goes_through_whole(served: Served, strategy: str) -> None:
    document = Document.from_text(bundled_document().text[40_000:48_000], "python-reference")
    events: list[Event] = []
    resources = Resources(
        tokenizer=Tokenizer.from_directory(served.model_path),
        budget=TokenBudget(4096),
        dispatcher=served.dispatcher(),
        chunk_tokens=1000,
        gate=GateSettings(enabled=True, keep_at_least=2, keep_margin=0.5),
        calibration=Calibration(keep_probability=0.0),
        emit=events.append,
    )
    task = "summarization" if strategy in {"summarize", "langchain"} else "question_answering"
    answer = await ask(document, Request(question="What is this about?", strategy=strategy, task=task), resources)
    assert isinstance(events[0], Planned)
    assert isinstance(events[-1], Finished)
    # A model this small may babble up to its limit where an action is asked for; no other fault is its own.
    assert {failed.error for failed in answer.coverage.failed_chunks} <= {"MalformedOutput"}
    assert sum(usage.calls for usage in answer.usage.values()) > 0
    for evidence in answer.evidence:
        if evidence.span is not None:
            assert evidence.quote == document.slice(evidence.span)
