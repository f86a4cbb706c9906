"""/v1/jobs: submit, watch, stop, read. Every answer is about the caller's own jobs; others do not exist for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from pipeline.documents.document import Document
from pipeline.errors import EmptyDocument
from serving.api.auth import require
from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway, Gateway, Principal
from serving.api.ids import bare_id, no_such_job
from serving.api.native import submit
from serving.api.native.bodies import JobBody, ResumeBody, check_names, check_options, check_pause, job_request
from serving.api.native.objects import JobCheckpoint, JobDeleted, JobList, JobObject, job_object, job_path
from serving.api.stream.sse import EVENT_SCHEMA, EventStream, frame
from serving.flowchart import draw_flowchart
from serving.jobs.job import Job

router = APIRouter(tags=["jobs"])

JobUser = Annotated[Principal, Depends(require("infer"))]
_EXAMPLE_EVENTS = """id: 89
event: call.finished
data: {"seq":89,"at":1795305612.3,"stage":"map","chunk":118,"state":"ok","error":"","tokens":[6120,0,211]}

: ping

"""
_MAX_SEQ = 2**53
"""Beyond it JavaScript's numbers have gaps."""
_ESTIMATES_AT_ONCE = 2
_estimating = asyncio.Semaphore(_ESTIMATES_AT_ONCE)


async def find_job(job_id: str, request: Request, gateway: CurrentGateway, principal: JobUser) -> Job:
    """The job of the path, by any of its spellings."""
    job = await gateway.store.find(bare_id(job_id), principal.owner)
    if job is None:
        raise no_such_job(job_id)
    request.state.job_id = job.id
    return job


FoundJob = Annotated[Job, Depends(find_job)]


@router.post(
    "/v1/jobs",
    status_code=202,
    responses={202: {"headers": {name: {"schema": {"type": "string"}} for name in ("Location", "Retry-After")}}},
)
async def submit_job(
    body: JobBody, request: Request, response: Response, gateway: CurrentGateway, principal: JobUser
) -> JobObject:
    """Accept a job. It is kept from here on, whatever dies. With an `Idempotency-Key`, once."""
    gateway.check_running()
    check_names(body.strategy, body.task_name)
    check_options(body.strategy, body.options, "options")
    check_pause(body.strategy, body.pause_before)
    principal.check_model(body.strategy)
    documents = await submit.find_documents(gateway, principal, body.file_ids)
    if body.text is not None:
        documents += (await gateway.files.add_text(principal.owner, _filled(body.text), body.text_name),)
    asked = job_request(body, documents)
    await submit.check_feasible(gateway, asked, question_param="question", options_param="options")
    repetition = await submit.read_repetition(request)
    job, _ = await submit.submit(gateway, principal, asked, repetition, surface="job")
    request.state.job_id = job.id
    response.headers["location"] = job_path(job)
    response.headers["retry-after"] = "2"
    return job_object(job)


@router.post("/v1/jobs:estimate")
async def estimate_job(body: JobBody, gateway: CurrentGateway, principal: JobUser) -> dict[str, Any]:
    """What the job would take: the plan, calls and tokens at most, seconds as far as this machine was measured.

    `queue` is what it would wait for before that: jobs queued before it, jobs running, and seconds, at least.
    """
    check_names(body.strategy, body.task_name)
    check_options(body.strategy, body.options, "options")
    check_pause(body.strategy, body.pause_before)
    documents = await submit.find_documents(gateway, principal, body.file_ids)
    async with _estimating:
        loaded = [await gateway.files.load_document(documents)] if documents else []
        if body.text is not None:
            loaded.append(Document.from_text(_filled(body.text), body.text_name))
        document = loaded[0] if len(loaded) == 1 else await asyncio.to_thread(Document.join, loaded)
        bounds = await submit.estimate_run(gateway, document, job_request(body, documents))
    lane = submit.choose_lane(gateway, job_request(body, documents), extra_characters=len(body.text or ""))
    wait = await submit.estimate_wait(gateway, principal.owner, lane)
    estimate = {"seconds_low": bounds.seconds_low, "seconds_high": bounds.seconds_high, "queue": asdict(wait)}
    plan = asdict(bounds.plan) | {"graph_svg": draw_flowchart(bounds.plan.graph)}
    return {"object": "job.estimate", "characters": len(document.text)} | plan | estimate


@router.get("/v1/jobs")
async def list_jobs(
    gateway: CurrentGateway,
    principal: JobUser,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str, Query(max_length=64)] = "",
) -> JobList:
    """Newest first; `after` is the last id of the page before."""
    found = await gateway.store.list_jobs(principal.owner, limit=limit + 1, after=bare_id(after) if after else "")
    shown = [job_object(job) for job in found[:limit]]
    first, last = (shown[0].id, shown[-1].id) if shown else (None, None)
    return JobList(data=shown, first_id=first, last_id=last, has_more=len(found) > limit)


@router.get("/v1/jobs/{job_id}")
async def get_job(job: FoundJob) -> JobObject:
    """Where the job is."""
    return job_object(job)


@router.delete("/v1/jobs/{job_id}")
async def delete_job(job: FoundJob, gateway: CurrentGateway) -> JobDeleted:
    """Forget a job that has ended, with its events and its result. One that runs is to be cancelled first."""
    if not await gateway.store.delete(job.id, job.owner):
        raise no_such_job(job.id)
    return JobDeleted(id=f"job_{job.id}")


@router.post("/v1/jobs/{job_id}/cancel")
async def cancel_job(job: FoundJob, gateway: CurrentGateway) -> JobObject:
    """Stop a job. A running one is cancelled when its runner has stopped the calls: its events tell when."""
    return job_object(_still_there(await gateway.store.request_cancel(job.id, job.owner), job.id))


@router.post("/v1/jobs/{job_id}/retry", status_code=202)
async def retry_job(job: FoundJob, gateway: CurrentGateway) -> JobObject:
    """Run a failed or cancelled job again. What was completed before is taken from the journal and not paid again."""
    gateway.check_running()
    return job_object(_still_there(await gateway.store.retry(job.id, job.owner), job.id))


@router.get("/v1/jobs/{job_id}/checkpoint")
async def get_checkpoint(job: FoundJob, gateway: CurrentGateway) -> JobCheckpoint:
    """Where the job was paused the last time: the step that comes next, and the state it begins from."""
    at = await gateway.store.paused_at(job.id)
    if at is None:
        raise ApiError(404, "The job was never paused; a job with pause_before is.", "not_paused")
    edited = next((edit.state for edit in job.request.edits if edit.step == at.data["step"]), None)
    return JobCheckpoint(job_id=f"job_{job.id}", **{**at.data, **({"state": json.loads(edited)} if edited else {})})


@router.post("/v1/jobs/{job_id}/resume", status_code=202)
async def resume_job(job: FoundJob, gateway: CurrentGateway, body: ResumeBody = ResumeBody()) -> JobObject:  # noqa: B008
    """Let a paused job go on, with another state if one is given. Nothing that was completed is asked again.

    A state that does not fit fails the job with StateInvalid, which says where; it can then be resumed with another.
    """
    gateway.check_running()
    check_pause(job.request.strategy, body.pause_before)
    state = json.dumps(body.state) if body.state is not None else None
    return job_object(_still_there(await gateway.store.resume(job.id, job.owner, state, body.pause_before), job.id))


@router.get(
    "/v1/jobs/{job_id}/result",
    response_model=dict[str, Any],
    responses={202: {"model": JobObject, "description": "Not ended: the job as it is. Ask again after Retry-After."}},
)
async def get_result(job: FoundJob) -> Response:
    """The answer with evidence, conflicts, coverage and usage; 202 with the job as long as there is none."""
    if job.result is not None:
        return JSONResponse({"id": f"job_{job.id}", "object": "job.result", **job.result})
    refuse_ended(job)
    return JSONResponse(job_object(job).model_dump(mode="json"), 202, {"retry-after": "2"})


@router.get(
    "/v1/jobs/{job_id}/events",
    status_code=200,
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {"schema": EVENT_SCHEMA, "example": _EXAMPLE_EVENTS}}}},
)
async def follow_events(
    job: FoundJob,
    request: Request,
    gateway: CurrentGateway,
    after: Annotated[int, Query(ge=0, le=_MAX_SEQ)] = 0,
) -> EventStream:
    """Everything that happened and happens, as server-sent events whose ids are the events' `seq`.

    Goes on after `after`, or after the header Last-Event-ID, without gap or repeat; ends with the job.
    """
    return EventStream(_frames(gateway, job.id, _last_event_id(request, after)), gateway.stopping)


async def _frames(gateway: Gateway, job_id: str, after: int) -> AsyncIterator[bytes]:
    async with aclosing(gateway.feed.follow(job_id, after)) as records:
        async for record in records:
            data = {"seq": record.seq, "at": record.created_unix_s, **record.data}
            yield frame(data, event=record.kind, id=record.seq)


def refuse_ended(job: Job) -> None:
    """Raise ApiError 404 if the job ended without a result."""
    if job.error is not None:
        message = f"The job failed: {job.error.get('message') or job.error.get('type')}"
        raise ApiError(404, message, "job_failed")
    if job.state == "cancelled":
        raise ApiError(404, "The job was cancelled; it has no result. POST its /retry runs it again.", "job_cancelled")


def _last_event_id(request: Request, after: int) -> int:
    given = request.headers.get("last-event-id", "")
    if not given:
        return after
    if not given.isdecimal() or not given.isascii() or len(given) > 16:
        raise ApiError(422, "Last-Event-ID is the number of the last event that was read.", param="Last-Event-ID")
    return int(given)


def _filled(text: str) -> str:
    if not text.strip():
        raise EmptyDocument
    return text


def _still_there(job: Job | None, job_id: str) -> Job:
    if job is None:
        raise no_such_job(job_id)
    return job
