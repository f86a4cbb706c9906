"""`longfold ask` beside a running service on one database: each runs its own jobs, and both see all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipeline.documents.document import Document
from pipeline.llm.scripted import Reply, ScriptedModel
from pipeline.run.events import CallEnded, Event
from pipeline.run.request import Request
from serving.jobs.attempt import JobRun
from serving.jobs.job import LOCAL_OWNER, Job, JobState, Lane
from serving.jobs.run_here import job_request, run_job_again, run_new_job
from serving.settings import Settings
from tests.api import gateway_rig
from tests.api.conftest import Start
from tests.api.rig import OWNER, QUESTION, Rig, reader, story, until


def settings_of(rig: Rig) -> Settings:
    return Settings(state_dir=rig.folder, cache_dir=rig.folder / "cache")


async def ask(rig: Rig, model: ScriptedModel, begun: list[Job], events: list[Event], **options: str) -> JobRun:
    """As the command does, on a model of its own."""
    document = Document.from_text(story(), "story.txt")
    request = job_request(Request(question=QUESTION, strategy="mapreduce"), **options)
    return await run_new_job(
        settings_of(rig), rig.session(model), document, request, emit=events.append, begun=begun.append
    )


async def test_a_services_runner_leaves_the_commands_job_alone_and_both_are_kept(rig: Rig, start: Start) -> None:
    served, own = ScriptedModel(reader()), ScriptedModel(reader())
    start(rig.runner(served))
    begun: list[Job] = []
    events: list[Event] = []
    ran = await ask(rig, own, begun, events)
    assert ran.answer is not None
    assert (ran.answer.text, served.calls) == ("Ada Quill", [])
    assert len([event for event in events if isinstance(event, CallEnded)]) == len(own.calls) > 1
    [job] = await rig.store.list_jobs(LOCAL_OWNER)
    assert (job.id, job.state, job.lane) == (begun[0].id, JobState.COMPLETED, Lane.LOCAL)
    assert (job.request.documents[0].name, job.result is not None) == ("story.txt", True)
    other = await rig.ended(await rig.submit(story(fact_at=3)))
    assert other.state is JobState.COMPLETED, "the service goes on beside it"
    assert {found.owner for found in await rig.store.list_all(limit=9)} == {LOCAL_OWNER, OWNER}


async def test_the_api_shows_a_commands_job_and_cancels_it(tmp_path: Path) -> None:
    stalling = ScriptedModel(lambda call, times: Reply(stalls=True))
    begun: list[Job] = []
    async with gateway_rig.running_gateway(tmp_path) as gateway, asyncio.TaskGroup() as group:
        rig = await Rig.open(tmp_path / "state")
        asking = group.create_task(ask(rig, stalling, begun, []))
        await until(lambda: stalling.running > 0)
        listed = (await gateway.client.get("/v1/jobs")).json()["data"]
        assert [(job["id"], job["state"]) for job in listed] == [(f"job_{begun[0].id}", "running")]
        answer = await gateway.client.post(f"/v1/jobs/{listed[0]['id']}/cancel")
        assert answer.status_code == 200
        ran = await asking
        assert (ran.outcome, ran.answer, stalling.running) == (None, None, 0)
        job = await rig.store.find(begun[0].id, LOCAL_OWNER)
        assert job is not None
        assert job.state is JobState.CANCELLED
        await rig.database.close()


async def test_a_cancelled_command_leaves_a_job_that_goes_on_without_a_repeated_call(rig: Rig) -> None:
    read, begun = reader(), list[Job]()
    model = ScriptedModel(lambda call, times: read(call, times) if len(model.calls) <= 3 else Reply(stalls=True))
    asking = asyncio.create_task(ask(rig, model, begun, []))
    await until(lambda: len(model.calls) > 5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    job = await rig.store.find(begun[0].id, LOCAL_OWNER)
    assert job is not None
    assert (job.state, model.running) == (JobState.CANCELLED, 0)
    rest = ScriptedModel(reader())
    ran = await run_job_again(settings_of(rig), rig.session(rest), job, lambda _: None)
    assert ran.answer is not None
    assert ran.answer.text == "Ada Quill"
    assert {call.key("") for call in model.calls[:3]}.isdisjoint(call.key("") for call in rest.calls)


async def test_a_job_that_a_command_paused_is_resumed_by_the_service(rig: Rig, start: Start) -> None:
    own, served, begun = ScriptedModel(reader()), ScriptedModel(reader()), list[Job]()
    await ask(rig, own, begun, [], pause_before="reduce")
    job = await rig.store.find(begun[0].id, LOCAL_OWNER)
    assert job is not None
    assert job.state is JobState.PAUSED
    start(rig.runner(served))
    await rig.store.resume(job.id, LOCAL_OWNER, None, "")
    await until(lambda: _ended(rig, job))
    found = await rig.store.find(job.id, LOCAL_OWNER)
    assert found is not None
    assert found.result is not None
    assert (found.lane, found.result["answer"]) == (Lane.LONG, "Ada Quill")
    assert len(served.calls) <= 1, "its map is in the journal"


async def _ended(rig: Rig, job: Job) -> bool:
    found = await rig.store.find(job.id, LOCAL_OWNER)
    return found is not None and found.state is JobState.COMPLETED
