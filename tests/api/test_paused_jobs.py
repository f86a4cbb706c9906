"""A job stops where it was asked to, shows what it has, and goes on with what a person made of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import WrongState
from pipeline.llm.model import Stage
from pipeline.llm.scripted import ScriptedModel
from pipeline.run.checkpoints import Checkpoint
from serving.jobs.job import Job, JobState
from tests.api import gateway_rig
from tests.api.conftest import Start
from tests.api.rig import FACT, OWNER, Rig, reader, story


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[gateway_rig.Rig]:
    async with gateway_rig.running_gateway(tmp_path) as running:
        yield running


async def pause(rig: Rig, start: Start, model: ScriptedModel) -> tuple[Job, dict[str, Any]]:
    """A job that has come to its reduce, and its state there."""
    job = await rig.submit(story(), strategy="mapreduce", pause_before="reduce")
    start(rig.runner(model))
    paused = await rig.reaches(job, lambda found: found.state is JobState.PAUSED)
    at = await rig.store.paused_at(job.id)
    assert at is not None
    assert (at.kind, at.data["before"]) == ("job.paused", "reduce")
    return paused, json.loads(json.dumps(at.data["state"]))


async def test_a_job_pauses_with_what_it_has_found_and_its_runner_is_free(rig: Rig, start: Start) -> None:
    model = ScriptedModel(reader())
    paused, state = await pause(rig, start, model)
    assert (paused.result, paused.error, paused.finished_unix_s) == (None, None, None)
    [finding] = state["findings"]
    assert finding["answer"] == "Ada Quill"
    assert FACT in finding["evidence"][0]["quote"]
    other = await rig.ended(await rig.submit(story(fact_at=3)))
    assert other.state is JobState.COMPLETED, "the paused job holds no place"


async def test_it_goes_on_without_a_call_that_was_made_before(rig: Rig, start: Start) -> None:
    model = ScriptedModel(reader())
    paused, _ = await pause(rig, start, model)
    made = len(model.calls)
    await rig.store.resume(paused.id, OWNER, None, "")
    done = await rig.ended(paused)
    assert done.result is not None
    assert (done.state, done.result["answer"]) == (JobState.COMPLETED, "Ada Quill")
    assert {call.stage for call in model.calls[made:]} <= {Stage.REDUCE}
    assert done.usage is not None
    assert done.usage["map"]["calls"] == sum(call.stage is Stage.MAP for call in model.calls)
    kinds = [event.kind for event in await rig.store.events(paused.id)]
    told = [kind for kind in kinds if kind.startswith("job.")]
    assert told == ["job.queued", "job.started", "job.paused", "job.queued", "job.started", "job.completed"]
    assert kinds.count("chunk.mapped") == done.result["coverage"]["chunks_extracted"], "nothing is told twice"


async def test_what_a_person_wrote_is_what_the_run_goes_on_with_and_the_answer_says_so(rig: Rig, start: Start) -> None:
    paused, state = await pause(rig, start, ScriptedModel(reader()))
    state["findings"][0]["answer"] = "Berta Lund"
    await rig.store.resume(paused.id, OWNER, json.dumps(state), "")
    done = await rig.ended(paused)
    assert done.result is not None
    assert done.result["answer"] == "Berta Lund"
    assert any("edited manually" in warning for warning in done.result["warnings"])


async def test_a_state_that_does_not_fit_loses_nothing(rig: Rig, start: Start) -> None:
    model = ScriptedModel(reader())
    paused, state = await pause(rig, start, model)
    await rig.store.resume(paused.id, OWNER, json.dumps({"findings": [{"answr": "x"}]}), "")
    failed = await rig.reaches(paused, lambda found: found.state is JobState.FAILED)
    assert failed.error is not None
    assert (failed.error["type"], "answr" in failed.error["message"]) == ("StateInvalid", True)
    made = len(model.calls)
    await rig.store.resume(paused.id, OWNER, json.dumps(state), "")
    done = await rig.ended(await rig.reaches(paused, lambda found: found.state is not JobState.FAILED))
    assert done.state is JobState.COMPLETED
    assert all(call.stage is Stage.REDUCE for call in model.calls[made:])


async def test_it_can_pause_again_at_a_later_step(rig: Rig, start: Start) -> None:
    job = await rig.submit(story(), strategy="refine", pause_before="refine")
    start(rig.runner(ScriptedModel(reader())))
    seen: list[int] = []
    for _ in range(2):
        await rig.reaches(job, lambda found: found.state is JobState.PAUSED)
        at = await rig.store.paused_at(job.id)
        assert at is not None
        seen.append(at.data["step"])
        await rig.store.resume(job.id, OWNER, None, "refine")
    assert seen[0] < seen[1]


async def test_a_paused_job_can_be_cancelled_and_not_tried_again(rig: Rig, start: Start) -> None:
    paused, _ = await pause(rig, start, ScriptedModel(reader()))
    with pytest.raises(WrongState, match="only a failed or cancelled"):
        await rig.store.retry(paused.id, OWNER)
    assert await rig.store.resume(paused.id, "stranger", None, "") is None
    cancelled = await rig.store.request_cancel(paused.id, OWNER)
    assert cancelled is not None
    assert cancelled.state is JobState.CANCELLED
    with pytest.raises(WrongState, match="only a paused job"):
        await rig.store.resume(paused.id, OWNER, None, "")


async def test_over_http_a_job_shows_its_state_and_takes_it_back(gateway: gateway_rig.Rig) -> None:
    job_id = await gateway.submit(strategy="mapreduce", pause_before="reduce")
    place = f"/v1/jobs/job_{job_id}"
    assert (await gateway.client.get(f"{place}/checkpoint")).json()["error"]["code"] == "not_paused"
    state = {"findings": [{"answer": "green"}]}
    checkpoint = Checkpoint(number=1, name="reduce", state=json.dumps(state))
    await gateway.store.pause(await gateway.claim(), checkpoint)
    job = (await gateway.client.get(place)).json()
    assert (job["state"], job["pause_before"]) == ("paused", "reduce")
    shown = (await gateway.client.get(job["links"]["checkpoint"])).json()
    assert (shown["step"], shown["before"], shown["state"]) == (1, "reduce", state)
    for wrong, param in (({"pause_before": "colapse"}, "pause_before"), ({"state": []}, "state")):
        refused = await gateway.client.post(job["links"]["resume"], json=wrong)
        assert (refused.is_client_error, refused.json()["error"]["param"]) == (True, param)
    changed = {"findings": [{"answer": "red"}]}
    resumed = await gateway.client.post(job["links"]["resume"], json={"state": changed})
    assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
    request = (await gateway.claim()).job.request
    assert [(edit.step, json.loads(edit.was), json.loads(edit.state)) for edit in request.edits] == [
        (1, state, changed)
    ]
    again = await gateway.client.post(job["links"]["resume"])
    assert (again.status_code, again.json()["error"]["code"]) == (422, "wrong_state")


async def test_a_step_that_the_strategy_does_not_have_is_refused_with_those_that_it_has(
    gateway: gateway_rig.Rig,
) -> None:
    body = {"question": "Which?", "text": "Green.", "strategy": "mapreduce", "pause_before": "colapse"}
    refused = await gateway.client.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "pause_before")
    assert "collapse, reduce" in refused.json()["detail"]
