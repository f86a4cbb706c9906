"""Native jobs over HTTP: what is accepted, shown, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.jobs import store
from serving.jobs.job import JobState, NewEvent
from serving.session import SpeedBook
from tests.api.gateway_rig import TEXT, Rig, running_gateway

QUESTION = "Which colour is the door?"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as running:
        yield running


async def test_a_job_is_accepted_with_its_place_and_found_under_all_its_names(rig: Rig) -> None:
    answer = await rig.client.post("/v1/jobs", json={"question": QUESTION, "text": TEXT, "metadata": {"ticket": "1"}})
    assert answer.status_code == 202
    assert answer.headers["retry-after"] == "2"
    job = answer.json()
    bare = job["id"].removeprefix("job_")
    assert answer.headers["location"] == f"/v1/jobs/job_{bare}"
    assert answer.headers["x-longfold-run"] == bare
    for spelled in (f"job_{bare}", f"resp_{bare}", f"chatcmpl-{bare}", bare):
        found = (await rig.client.get(f"/v1/jobs/{spelled}")).json()
        assert (found["id"], found["state"], found["metadata"]) == (job["id"], "queued", {"ticket": "1"})


async def test_the_queue_counts_in_an_estimate(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"question": QUESTION, "text": TEXT}
    queue = (await rig.client.post("/v1/jobs:estimate", json=body)).json()["queue"]
    assert queue == {"jobs": 0, "running": 0, "seconds": None}, "this machine was never measured"
    monkeypatch.setattr(SpeedBook, "find", lambda self, fingerprint: 2.0)
    for _ in range(3):
        await rig.submit()
    await rig.claim()
    queue = (await rig.client.post("/v1/jobs:estimate", json=body)).json()["queue"]
    tokens = len(TEXT) // 3
    assert queue == {"jobs": 2, "running": 1, "seconds": 3 * tokens / 2}


async def test_a_request_that_waits_is_refused_for_what_is_queued_before_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeedBook, "find", lambda self, fingerprint: 10.0)
    messages = [{"role": "user", "content": "Hello"}]
    asked = {"model": rig.gateway.model.profile.name, "messages": messages, "max_tokens": 8}
    for _ in range(50):
        await rig.submit(text=TEXT * 10)
    answer = await rig.client.post("/v1/chat/completions", json=asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "use_background")
    assert "behind 50 other jobs" in answer.json()["error"]["message"]


async def test_one_owner_cannot_fill_the_queue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_QUEUED_PER_OWNER", 1)
    await rig.submit()
    answer = await rig.client.post("/v1/jobs", json={"question": QUESTION, "text": TEXT})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
    assert "1 of your jobs are waiting" in answer.json()["error"]["message"]
    await rig.submit(await rig.make_key(owner="another"))


async def test_files_and_text_become_one_document_in_their_order(rig: Rig) -> None:
    upload = await rig.client.post(
        "/v1/files", files={"file": ("a.txt", b"First file.")}, data={"purpose": "user_data"}
    )
    file_id = upload.json()["id"]
    answer = await rig.client.post("/v1/jobs", json={"question": QUESTION, "file_ids": [file_id], "text": "Then text."})
    job = answer.json()
    assert [(d["file_id"], d["name"], d["start"]) for d in job["documents"]] == [
        (file_id, "a.txt", 0),
        (None, "text", 13),
    ]
    assert job["characters"] == 23
    text = await rig.client.get(f"/v1/jobs/{job['id']}/text", params={"start": 6, "end": 17})
    assert text.json()["text"] == "file.\n\nThen"


@pytest.mark.parametrize(
    ("fields", "status", "code", "param", "told"),
    [
        ({"strategy": "maprdeuce"}, 404, "unknown_name", "strategy", "mapreduce"),
        ({"task": "poetry"}, 404, "unknown_name", "task", "summarization"),
        ({"colour": "green"}, 422, "invalid_request", "colour", "colour"),
        ({"options": {"chunk_token": 100}}, 422, "invalid_request", "options.chunk_token", "chunk_token"),
        ({"question": "  "}, 422, "invalid_request", "question", "question"),
        ({"text": " \n "}, 422, "empty_document", None, "no text"),
        ({"text": None}, 422, "invalid_request", None, "file_ids or as text"),
        ({"choices": ["red"]}, 422, "invalid_request", "choices", "at least two"),
        ({"choices": ["red", "blue"], "task": "code"}, 422, "invalid_request", None, "go together"),
        ({"task": "multiple_choice"}, 422, "invalid_request", None, "go together"),
        ({"options": {"chunk_tokens": 511}}, 422, "invalid_request", "options.chunk_tokens", "512"),
        ({"options": {"use_scores": 0}}, 422, "invalid_request", "options.use_scores", "boolean"),
        ({"options": {"use_scores": False}}, 404, "unknown_name", "options.use_scores", "its options are chunk_tokens"),
        (
            {"options": {"use_gate": True}, "strategy": "refine"},
            404,
            "unknown_name",
            "options.use_gate",
            "refine has no",
        ),
        ({"limits": {"calls": "5"}}, 422, "invalid_request", "limits.calls", "integer"),
        ({"question": "Why? " * 3000}, 422, "question_too_long", "question", "at most"),
        ({"choices": ["red " * 2000, "blue"]}, 422, "question_too_long", "question", "at most"),
        (
            {"options": {"gather_tokens": 9000}, "strategy": "mapreduce"},
            422,
            "context_too_small",
            "options",
            "gather_tokens=9000",
        ),
        ({"options": {"gather_tokens": 9000}, "text": TEXT * 2000}, 422, "context_too_small", "options", "Gather less"),
        ({"file_ids": ["file-01K9ZJ3W5T8Q4V6X2B7N9M1C0D"]}, 404, "file_not_found", "file_ids.0", "file-01K9"),
    ],
)
async def test_what_cannot_be_done_is_said_with_its_field(
    rig: Rig, fields: dict[str, object], status: int, code: str, param: str | None, told: str
) -> None:
    answer = await rig.client.post("/v1/jobs", json={"question": QUESTION, "text": TEXT} | fields)
    body = answer.json()
    assert (answer.status_code, body["error"]["code"], body["error"]["param"]) == (status, code, param)
    assert told in body["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-should-retry"] == "false"


async def test_what_cannot_be_done_leaves_no_job(rig: Rig) -> None:
    for fields in ({"choices": ["red"]}, {"question": "Why? " * 3000}, {"options": {"gather_tokens": 9000}}):
        body = {"question": QUESTION, "text": TEXT * 2000} | fields
        assert (await rig.client.post("/v1/jobs", json=body)).status_code == 422
        assert (await rig.client.post("/v1/jobs:estimate", json=body)).status_code == 422
    assert (await rig.client.get("/v1/jobs")).json()["data"] == []


async def test_one_idempotency_key_makes_one_job_of_twenty_posts(rig: Rig) -> None:
    async def post() -> tuple[int, str]:
        answer = await rig.client.post(
            "/v1/jobs", json={"question": QUESTION, "text": TEXT}, headers={"idempotency-key": "k1"}
        )
        return answer.status_code, answer.json()["id"]

    answers = await asyncio.gather(*(post() for _ in range(20)))
    assert {status for status, _ in answers} == {202}
    assert len({job_id for _, job_id in answers}) == 1
    assert len((await rig.client.get("/v1/jobs")).json()["data"]) == 1
    other = await rig.client.post(
        "/v1/jobs", json={"question": "Another?", "text": TEXT}, headers={"idempotency-key": "k1"}
    )
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")


async def test_a_counted_retry_attaches_to_the_first_job(rig: Rig) -> None:
    first = await rig.submit()
    again = await rig.submit({"x-stainless-retry-count": "1"})
    fresh = await rig.submit({"x-stainless-retry-count": "0"})
    assert again == first
    assert fresh != first


async def test_a_job_goes_through_cancel_retry_result_and_delete(rig: Rig) -> None:
    job_id = await rig.submit()
    path = f"/v1/jobs/{job_id}"
    assert (await rig.client.get(f"{path}/result")).status_code == 202
    assert (await rig.client.delete(path)).json()["error"]["code"] == "wrong_state"
    assert (await rig.client.post(f"{path}/cancel")).json()["state"] == "cancelled"
    gone = await rig.client.get(f"{path}/result")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "job_cancelled")
    assert (await rig.client.post(f"{path}/retry")).json()["state"] == "queued"
    claim = await rig.claim()
    assert (await rig.client.post(f"{path}/cancel")).json()["cancel_requested"] is True
    await rig.finish(claim, JobState.FAILED, error={"type": "CallTimedOut", "message": "too slow", "retryable": True})
    failed = await rig.client.get(f"{path}/result")
    assert (failed.status_code, failed.json()["error"]["code"]) == (404, "job_failed")
    assert "too slow" in failed.json()["detail"]
    assert (await rig.client.post(f"{path}/retry")).status_code == 202
    await rig.finish(await rig.claim())
    done = await rig.client.get(f"{path}/result")
    assert (done.status_code, done.json()["answer"]) == (200, "green")
    refused = await rig.client.post(f"{path}/retry")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "wrong_state")
    assert (await rig.client.delete(path)).json() == {"id": f"job_{job_id}", "object": "job", "deleted": True}
    assert (await rig.client.get(path)).status_code == 404


async def test_jobs_are_listed_newest_first_by_pages(rig: Rig) -> None:
    ids = [await rig.submit() for _ in range(3)]
    page = (await rig.client.get("/v1/jobs", params={"limit": 2})).json()
    assert [job["id"] for job in page["data"]] == [f"job_{ids[2]}", f"job_{ids[1]}"]
    assert page["has_more"] is True
    rest = (await rig.client.get("/v1/jobs", params={"limit": 2, "after": page["last_id"]})).json()
    assert ([job["id"] for job in rest["data"]], rest["has_more"]) == ([f"job_{ids[0]}"], False)


async def test_an_estimate_is_the_real_plan_and_keeps_nothing(rig: Rig) -> None:
    body = {"question": QUESTION, "text": TEXT * 200, "options": {"chunk_tokens": 600}}
    told = (await rig.client.post("/v1/jobs:estimate", json=body)).json()
    assert told["strategy"] == "mapreduce"
    assert told["chunks"] > 5
    assert told["calls"] >= told["chunks"]
    assert told["seconds_low"] is None
    assert (await rig.client.get("/v1/jobs")).json()["data"] == []


async def test_offsets_of_evidence_and_text_count_code_points(rig: Rig) -> None:
    """Through all documents as one text, an empty line between two, and through the quote's own file."""
    first, second = "😀 Nothing is green here. 𝒳", "🚪 The door 😀 is green."
    upload = {"file": ("a.txt", first.encode())}
    sent = await rig.client.post("/v1/files", files=upload, data={"purpose": "user_data"})
    job_id = await rig.submit(text=second, file_ids=[sent.json()["id"]])
    whole = f"{first}\n\n{second}"
    start = whole.index("door 😀 is")
    found = {"quote": "door 😀 is", "start": start, "end": start + 9, "alignment": "exact", "chunk": 0}
    other = {"quote": "lost", "start": None, "end": None, "alignment": "unlocated", "chunk": 0}
    result = {"answer": "green", "evidence": [found], "conflicts": [{"answer": "red", "evidence": [other]}]}
    await rig.finish(await rig.claim(), result=result)
    item, lost = (await rig.client.get(f"/v1/jobs/{job_id}/evidence")).json()["data"]
    assert (item["n"], item["start"], item["end"], item["side"]) == (1, start, start + 9, "answer")
    assert (item["document"], item["file_start"]) == ("text", second.index("door"))
    assert (lost["n"], lost["side"], lost["answer"], lost["start"]) == (2, "conflict", "red", None)
    for begin, end in ((start, start + 9), (0, 3), (20, 29), (26, 28), (27, 60), (28, 28)):
        piece = (await rig.client.get(f"/v1/jobs/{job_id}/text", params={"start": begin, "end": end})).json()
        assert (piece["text"], piece["total"]) == (whole[begin:end], len(whole))


async def test_too_much_text_at_once_is_refused(rig: Rig) -> None:
    job_id = await rig.submit(text="word " * 100_000)
    too_much = await rig.client.get(f"/v1/jobs/{job_id}/text", params={"start": 0, "end": 400_000})
    assert too_much.status_code == 422
    assert len((await rig.client.get(f"/v1/jobs/{job_id}/text")).json()["text"]) == 262_144
    nothing = await rig.client.get(f"/v1/jobs/{job_id}/text", params={"start": 9, "end": 3})
    assert (nothing.status_code, nothing.json()["text"], nothing.json()["start"]) == (200, "", 9)


async def test_the_tree_is_what_the_events_tell(rig: Rig) -> None:
    job_id = await rig.submit()
    claim = await rig.claim()

    def call(stage: str, chunk: int | None, state: str = "ok") -> NewEvent:
        data = {"stage": stage, "chunk": chunk, "state": state, "error": "", "tokens": [10, 4, 2], "cached": False}
        return NewEvent(kind="call.finished", data=data)

    def mapped(chunk: int, answer: str) -> NewEvent:
        data = {"chunk": chunk, "span": [0, 1], "empty": not answer, "answer": answer, "confidence": 4}
        return NewEvent(kind="chunk.mapped", data=data | {"probability": 0.8, "evidence": []})

    events = [
        NewEvent(kind="split", data={"spans": [[0, 10], [10, 20], [20, 30], [30, 40]]}),
        NewEvent(kind="stage.started", data={"stage": "map", "calls": 4}),
        NewEvent(kind="chunk.gated", data={"chunk": 3, "score": -2.5}),
        *[event for chunk in (0, 1) for event in (call("map", chunk), mapped(chunk, "green"))],
        call("map", 2, "failed"),
        NewEvent(kind="collapsed", data={"depth": 1, "chunks": [0, 1]}),
        NewEvent(kind="provisional", data={"answer": "green", "confidence": 4, "probability": 0.8, "reason": "first"}),
    ]
    await rig.store.append(claim, events)
    tree = (await rig.client.get(f"/v1/jobs/{job_id}/tree")).json()
    assert [chunk["state"] for chunk in tree["chunks"]] == ["mapped", "mapped", "failed", "gated"]
    assert tree["chunks"][0]["tokens"] == [10, 4, 2]
    assert tree["chunks"][3]["score"] == -2.5
    assert [node["children"] for node in tree["collapses"]] == [["m-0000", "m-0001"]]
    assert tree["reduce"]["children"] == ["c-1-0"]
    assert tree["reduce"]["answer"] == "green"
    assert tree["stages"] == [
        {"stage": "map", "calls": 4, "done": 3, "failed": 1, "from_journal": 0, "tokens": [30, 12, 6]}
    ]
    assert tree["last_seq"] == (await rig.client.get(f"/v1/jobs/{job_id}")).json()["last_seq"]
