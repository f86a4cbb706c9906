"""One state of a run, live or read back from its job's history."""

from __future__ import annotations

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Span
from pipeline.front_door import ask
from pipeline.llm.model import LIMIT_REACHED, CallFailed, Stage, Usage
from pipeline.llm.scripted import ScriptedModel, seeded_script
from pipeline.run.events import CallEnded, ChunkGated, ChunkMapped, Event, Planned, Split, StageStarted
from pipeline.run.state import ChunkOutcome, RunState
from pipeline.run.strategy import Request
from pipeline.strategies import STRATEGIES
from serving.jobs.events import EventRecorder, RecordedRun, progress_record
from serving.jobs.job import EventRecord
from tests.factories import fact_document, make_resources


def call(stage: Stage, *, error: str = "", chunk: int = 0) -> CallEnded:
    failed = CallFailed(error=error, message="") if error else None
    return CallEnded(stage=stage, chunk_index=chunk, usage=Usage(calls=1), failed=failed, from_journal=False)


def state_of(*events: Event) -> RunState:
    state = RunState()
    for event in (Split(spans=(Span(0, 5), Span(5, 9))), *events):
        state.apply(event)
    return state


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_history_reads_back_as_the_state_that_wrote_it(strategy: str) -> None:
    events: list[Event] = []
    document = fact_document({3: "The keeper is Anna Torv."}, paragraphs=4 if strategy == "direct" else 40)
    request = Request(question="Who is the keeper?", strategy=strategy)
    dispatcher = InlineDispatcher(ScriptedModel(seeded_script(4)))
    resources = make_resources(dispatcher=dispatcher, emit=events.append)
    await ask(document, request, resources)
    recorder, read = EventRecorder(), RecordedRun()
    for seq, event in enumerate(events, start=1):
        if (new := recorder.record(event)) is not None:
            read.add(EventRecord(seq=seq, kind=new.kind, data=new.data, created_unix_s=0.0))
    live, back = recorder.state, read.state
    assert back.plan == live.plan == next(event.plan for event in events if isinstance(event, Planned))
    assert [(c.span, c.outcome, c.error) for c in back.chunks] == [(c.span, c.outcome, c.error) for c in live.chunks]
    assert [f.answer for f in back.findings] == [f.answer for f in live.findings]
    assert [f.evidence for f in back.findings] == [f.evidence for f in live.findings]
    assert {stage: (at.calls, at.done, at.kept) for stage, at in back.stages.items()} == {
        stage: (at.calls, at.done, at.kept) for stage, at in live.stages.items()
    }
    assert {s: used.output_tokens for s, used in back.usage.items()} == {
        s: used.output_tokens for s, used in live.usage.items()
    }
    assert [(c.depth, c.chunk_indices) for c in back.collapses] == [(c.depth, c.chunk_indices) for c in live.collapses]
    assert progress_record(back)["stages"].keys() == progress_record(live)["stages"].keys()
    assert live.is_finished
    assert live.answer is not None


def test_a_chunk_whose_map_failed_is_failed_until_it_is_asked_again() -> None:
    failed = (call(Stage.MAP, error="CallTimedOut"), ChunkMapped(chunk_index=0, finding=None))
    assert state_of(*failed).chunks[0].outcome is ChunkOutcome.FAILED
    again = state_of(*failed, call(Stage.MAP), ChunkMapped(chunk_index=0, finding=None))
    assert (again.chunks[0].outcome, again.chunks[0].error) == (ChunkOutcome.EMPTY, "")


def test_a_call_that_a_limit_kept_back_is_no_failure() -> None:
    state = state_of(ChunkGated(chunk_index=1, score=0.5), call(Stage.MAP, error=LIMIT_REACHED, chunk=1))
    assert (state.failures, state.chunks[1].outcome) == ([], ChunkOutcome.GATED)
    assert state_of(call(Stage.MAP, error="CallTimedOut")).failures[0].error == "CallTimedOut"


def test_more_calls_than_expected_are_expected() -> None:
    state = state_of(StageStarted(stage=Stage.MAP, calls=1), call(Stage.MAP), call(Stage.MAP))
    assert (state.stages[Stage.MAP].calls, state.stages[Stage.MAP].done) == (2, 2)
