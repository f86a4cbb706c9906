"""A job's history is the same whoever tells it, and says what a reader needs to draw the run."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.findings.finding import Evidence
from pipeline.front_door import ask
from pipeline.llm.model import CallFailed, Stage, Usage
from pipeline.llm.scripted import ScriptedModel
from pipeline.run.events import CallEnded, Event, Planned, Split
from pipeline.run.request import Request
from pipeline.run.state import RunState
from serving.jobs.events import EventRecorder, progress_record, progress_text
from serving.jobs.job import NewEvent
from tests.factories import fact_document, make_resources, make_tokenizer, reading_script

DOCUMENT = fact_document({3: "The harbour master was Ada Quill."}, paragraphs=14)
REQUEST = Request(question="Who was the harbour master?", strategy="mapreduce")


async def run(journal: Journal) -> tuple[list[Event], list[NewEvent]]:
    events: list[Event] = []
    script = reading_script(make_tokenizer(), [("The harbour master was Ada Quill.", "Ada Quill")])
    inner = InlineDispatcher(ScriptedModel(script))
    dispatcher = JournaledDispatcher(inner, journal, "m", run_id="this")
    await ask(DOCUMENT, REQUEST, make_resources(dispatcher=dispatcher, emit=events.append))
    recorder = EventRecorder()
    return events, [record for event in events if (record := recorder.record(event)) is not None]


async def test_a_resumed_run_tells_under_the_same_keys(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    _, first = await run(journal)
    _, again = await run(journal)
    keys = [record.key for record in first]
    assert len(set(keys)) == len(keys)
    assert {record.key for record in again} == set(keys)
    assert {record.kind for record in first} >= {"plan", "split", "stage.started", "call.finished", "chunk.gated"}
    assert {record.kind for record in first} >= {"chunk.mapped", "provisional"}


async def test_the_records_are_json_and_place_every_chunk(tmp_path: Path) -> None:
    events, records = await run(Journal(tmp_path / "j.sqlite"))
    json.dumps([dict(record.data) for record in records])
    [split] = [event for event in events if isinstance(event, Split)]
    assert split.spans[0].start == 0
    assert split.spans[-1].end == len(DOCUMENT.text)
    [found] = [r.data for r in records if r.kind == "chunk.mapped" and not r.data["empty"]]
    assert found["span"] == [split.spans[found["chunk"]].start, split.spans[found["chunk"]].end]
    assert (found["answer"], found["confidence"]) == ("Ada Quill", 5)
    [evidence] = found["evidence"]
    assert DOCUMENT.text[evidence["start"] : evidence["end"]] == evidence["quote"]
    assert Evidence.__name__ not in json.dumps(found)


def ended(chunk: int, *, failed: bool = False, tokens: int = 10) -> CallEnded:
    failure = CallFailed(error="ReplicaUnavailable", message="gone") if failed else None
    usage = Usage(calls=1, prompt_tokens=tokens)
    return CallEnded(stage=Stage.MAP, chunk_index=chunk, usage=usage, failed=failure, from_journal=False)


def test_a_call_that_failed_and_then_succeeded_is_told_twice_but_one_told_again_is_not() -> None:
    first, again = EventRecorder(), EventRecorder()
    keys = [record.key for event in (ended(1, failed=True), ended(2)) if (record := first.record(event))]
    told = [record.key for event in (ended(1), ended(2, tokens=99)) if (record := again.record(event))]
    assert keys[0] != told[0]
    assert keys[1] == told[1]


def test_equal_calls_of_one_run_are_told_each() -> None:
    recorder = EventRecorder()
    assert len({record.key for _ in range(3) if (record := recorder.record(ended(1)))}) == 3


async def test_progress_says_in_a_few_words_where_a_run_is(tmp_path: Path) -> None:
    events, _ = await run(Journal(tmp_path / "j.sqlite"))
    state = RunState()
    assert progress_text(progress_record(state)) == progress_text(None) == ""
    gated = 0
    for event in events:
        state.apply(event)
        if isinstance(event, CallEnded) and event.stage is Stage.GATE:
            gated += 1
            if gated == 5:
                plan = next(e.plan for e in events if isinstance(e, Planned))
                assert progress_text(progress_record(state)) == f"gate 5/{plan.chunks}"
    json.dumps(progress_record(state))
