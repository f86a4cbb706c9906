"""A response's stream is computed from its job, the same each time; resuming gives neither gap nor repeat."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type
from openai.types.responses import ResponseStreamEvent

from serving.api.openai.output import ChatResult, answer_text, chat_result, response_object
from serving.api.openai.response_events import ResponseEvents
from serving.jobs.job import EventRecord, Job, JobRequest, JobState, Lane
from serving.storage.document_ref import DocumentRef

DOCUMENT = DocumentRef(text_sha256="ab", name="a.txt", file_id="file-1", characters=100, tokens=30)
EVIDENCE = [{"n": 1, "file_id": "file-1", "document": "a.txt", "quote": "q", "start": 3, "end": 4}]
RESULT: dict[str, Any] = {"answer": "Anselm", "found": True, "coverage": {"failed_chunks": []}, "evidence": []}


def job(state: JobState = JobState.QUEUED, *, background: bool = True, **fields: Any) -> Job:
    presentation = fields.pop("presentation", {"question_tokens": 5, "question": "Who?", "progress": "none"})
    request = JobRequest(question="Who?", documents=(DOCUMENT,), presentation=presentation, metadata={"team": "a"})
    values: dict[str, Any] = {
        "id": "01H", "owner": "o", "key_id": "", "surface": "response", "lane": Lane.LONG, "state": state,
        "request": request, "background": background, "gateway_id": "", "attempt": 1, "fence": 1, "last_seq": 1,
        "cancel_requested": False, "created_unix_s": 1.0, "started_unix_s": None, "finished_unix_s": None,
        "plan": None, "progress": None, "result": None, "error": None, "usage": None,
    }  # fmt: skip
    return Job(**values | fields)


def records(*kinds: tuple[str, dict[str, Any]]) -> list[EventRecord]:
    return [EventRecord(seq=n, kind=k, data=d, created_unix_s=0.0) for n, (k, d) in enumerate(kinds, start=1)]


def stream(first: Job, events: list[EventRecord], last: Job, told: ChatResult | None) -> list[dict[str, Any]]:
    told_events = ResponseEvents(first)
    sent = list(told_events.open())
    for record in events:
        sent += told_events.add(record)
    return sent + list(told_events.close(last, told))


def completed(**fields: Any) -> tuple[Job, ChatResult]:
    ended = job(JobState.COMPLETED, result=RESULT, finished_unix_s=9.0, **fields)
    return ended, chat_result(ended, EVIDENCE, 2)


CALLS = [("call.finished", {"stage": "map"})] * 7
SO_FAR = {"answer": "Ansel\n\ndata: x", "reason": "the first supported finding", "probability": 0.7712}
HISTORY = records(
    ("job.queued", {}),
    ("job.started", {}),
    ("stage.started", {"stage": "map", "calls": 7}),
    *CALLS[:3],
    ("provisional", SO_FAR),
    *CALLS[3:],
)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_a_completed_response_tells_the_events_that_clients_expect() -> None:
    sent = stream(job(), HISTORY, *completed())
    assert kinds(sent) == [
        "created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.annotation.added", "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert sent[-1]["response"]["output"][0]["content"][0]["text"] == "Anselm"


@pytest.mark.parametrize("progress", ["none", "reasoning"])
def test_every_event_is_one_that_openais_client_knows(progress: str) -> None:
    shown = {"progress": progress}
    for event in stream(job(presentation=shown), HISTORY, *completed(presentation=shown)):
        parsed: Any = construct_type(type_=ResponseStreamEvent, value=event)
        assert type(parsed).__name__.startswith("Response"), event["type"]
        assert type(parsed).model_validate(event).type == event["type"]


@given(st.integers(-1, 40), st.integers(0, len(HISTORY)), st.booleans())
def test_a_resumed_stream_continues_where_the_first_ended(after: int, torn_at: int, reasoning: bool) -> None:
    """Whatever the first client saw before it was torn off, and though the job has ended meanwhile."""
    shown = {"progress": "reasoning" if reasoning else "none"}
    first = ResponseEvents(job(presentation=shown))
    seen = list(first.open())
    for record in HISTORY[:torn_at]:
        seen += first.add(record)
    ended, told = completed(presentation=shown)
    whole = stream(ended, HISTORY, ended, told)
    assert whole[: len(seen)] == seen, "what was told before is told again the same"
    rest = [event for event in whole if event["sequence_number"] > after]
    assert [e["sequence_number"] for e in rest] == list(range(after + 1, len(whole)))


def test_an_answer_so_far_is_told_as_reasoning_and_nowhere_else() -> None:
    shown = {"progress": "reasoning"}
    sent = stream(job(presentation=shown), HISTORY, *completed(presentation=shown))
    lines = [event["delta"] for event in sent if event["type"] == "response.reasoning_summary_text.delta"]
    assert "So far: Ansel\n\ndata: x (the first supported finding; 77% sure)\n" in lines
    assert "So far" not in str(stream(job(), HISTORY, *completed()))
    events = ResponseEvents(job())
    for record in HISTORY[:7]:
        list(events.add(record))
    assert events.shown.progress == "map 3/7", "keep-alive lines, and what is polled, hold no text of the document"


def test_a_run_that_began_twice_is_told_once() -> None:
    twice = records(("job.queued", {}), ("job.started", {}), ("job.queued", {}), ("job.started", {}))
    assert kinds(stream(job(), twice, *completed())).count("in_progress") == 1


WRITTEN = records(
    ("job.queued", {}),
    ("job.started", {}),
    ("stage.started", {"stage": "direct", "calls": 1}),
    ("written", {"at": 0, "text": "Hello"}),
    ("written", {"at": 5, "text": " the"}),
    ("call.finished", {"stage": "direct"}),
)


def spoken(text: str, **fields: Any) -> tuple[Job, ChatResult]:
    request = JobRequest(kind="chat", messages=({"role": "user", "content": "Hi"},), **fields)
    ended = job(JobState.COMPLETED, request=request, result={"text": text, "finish_reason": "stop"})
    return ended, chat_result(ended, (), 3)


@pytest.mark.parametrize("progress", ["none", "reasoning"])
def test_a_message_is_told_as_it_is_written(progress: str) -> None:
    ended, told = spoken("Hello there.", presentation={"progress": progress})
    sent = stream(ended, WRITTEN, ended, told)
    assert [event["delta"] for event in sent if event["type"] == "response.output_text.delta"] == [
        "Hello",
        " the",
        "re.",
    ]
    message = [event for event in sent if event.get("item_id", "").startswith("msg_")]
    assert {event["output_index"] for event in message} == {int(progress == "reasoning")}
    assert kinds(sent).index("output_text.delta") > kinds(sent).index("content_part.added")
    assert kinds(sent).count("output_item.added") == kinds(sent).count("output_item.done")
    for event in sent:
        parsed: Any = construct_type(type_=ResponseStreamEvent, value=event)
        assert type(parsed).model_validate(event).type == event["type"]


def test_what_a_lost_replica_began_is_set_right_by_the_whole() -> None:
    ended, told = spoken("Good morning.")
    sent = stream(ended, WRITTEN, ended, told)
    assert [event["text"] for event in sent if event["type"] == "response.output_text.done"] == ["Good morning."]
    assert "ning" not in str([event["delta"] for event in sent if event["type"] == "response.output_text.delta"])


def test_failed_and_cancelled_responses_end_as_such() -> None:
    failed = job(JobState.FAILED, error={"type": "ReplicaUnavailable", "message": "none", "retryable": True})
    event = stream(job(), HISTORY, failed, None)[-1]
    assert (event["type"], event["response"]["error"]["code"]) == ("response.failed", "server_error")
    event = stream(job(), HISTORY, job(JobState.CANCELLED), None)[-1]
    assert (event["type"], event["response"]["status"]) == ("response.incomplete", "cancelled")


def test_a_cut_off_answer_is_incomplete() -> None:
    request = JobRequest(kind="chat", messages=({"role": "user", "content": "Hi"},))
    result = {"text": "and so", "finish_reason": "length", "usage": {"prompt_tokens": 9, "output_tokens": 2}}
    ended = job(JobState.COMPLETED, request=request, result=result)
    told = chat_result(ended, (), 99)
    shown = response_object(ended, told)
    assert (shown["status"], shown["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (shown["usage"]["input_tokens"], shown["usage"]["output_tokens"]) == (9, 2)


def test_usage_counts_document_and_question_once() -> None:
    _, told = completed()
    assert (told.prompt_tokens, told.completion_tokens) == (35, 2)


def test_an_answer_that_was_not_found_is_a_sentence_and_a_flag() -> None:
    ended = job(JobState.COMPLETED, result=RESULT | {"found": False, "answer": ""})
    assert answer_text(ended.request, ended.result or {}) == "The document does not say."
    assert chat_result(ended, (), 0).longfold["found"] is False
    chinese = JobRequest(question="灯塔看守人叫什么名字？")
    assert answer_text(chinese, {"found": False}) == "文档中没有说明。"


def test_evidence_is_left_out_where_nobody_wants_it() -> None:
    _, told = completed(presentation={"evidence": False})
    assert "evidence" not in told.longfold
    assert told.evidence == ()


def test_progress_stands_in_the_metadata_while_it_runs() -> None:
    running = job(JobState.RUNNING, progress={"stages": {"map": {"calls": 166, "done": 70}}})
    assert response_object(running)["metadata"] == {"team": "a", "progress": "map 70/166"}
    assert response_object(running)["status"] == "in_progress"
