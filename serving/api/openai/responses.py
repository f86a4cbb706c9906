"""/v1/responses: the standard way to run a long job. In the background, streamed with resume, or waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from pipeline.errors import LongfoldError
from serving.api.auth import require
from serving.api.clients import ClientTracker, get_client_tracker
from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway, Gateway, Principal
from serving.api.ids import PREFIX, bare_id
from serving.api.native.submit import read_repetition
from serving.api.openai.fields import RESPONSE_FIELDS, ResponseBody, body_schema, parse_body
from serving.api.openai.follow import cancel_and_wait, error_data, find_again, follow, load_result, wait_for_end
from serving.api.openai.input import read_response
from serving.api.openai.output import response_object
from serving.api.openai.response_events import ResponseEvents
from serving.api.openai.submit import Admission
from serving.api.stream.sse import KEEP_ALIVE_S, MAY_STREAM, EventStream, frame
from serving.jobs.job import Job, JobState

router = APIRouter(tags=["openai"])

CANCEL_WAIT_S = 5.0
"""A cancelled run's calls are stopped well within this; after it the response is told as it is."""
_MAX_NUMBER = 2**53
_BEFORE_FIRST = -1

User = Annotated[Principal, Depends(require("infer"))]


async def find_response(response_id: str, request: Request, gateway: CurrentGateway, principal: User) -> Job:
    """The job of the path. A stranger's does not exist."""
    job = await gateway.store.find(bare_id(response_id), principal.owner)
    if job is None:
        message = f"There is no response {response_id[:64]!r}."
        raise ApiError(404, message, "response_not_found", "response_id")
    request.state.job_id = job.id
    return job


FoundResponse = Annotated[Job, Depends(find_response)]


@router.post(
    "/v1/responses",
    summary="Ask about documents, also in the background",
    response_model=dict[str, Any],
    responses=MAY_STREAM,
    openapi_extra=body_schema(ResponseBody, RESPONSE_FIELDS, {"model": "auto", "input": "Hello"}),
)
async def create_response(request: Request, gateway: CurrentGateway, principal: User) -> Response:
    """With `background` it is accepted at once and goes on whatever the client does."""
    raw = await request.body()
    parsed = read_response(parse_body(ResponseBody, raw))
    repetition = await read_repetition(request)
    admission = Admission(gateway=gateway, principal=principal, parsed=parsed, surface="response")
    job = await admission.submit(repetition)
    request.state.job_id = job.id
    if parsed.stream:
        return _stream(request, gateway, job, _BEFORE_FIRST)
    if not parsed.background:
        job = await wait_for_end(gateway, get_client_tracker(request), job, request.receive)
    return JSONResponse(_as_response(gateway, job))


@router.get(
    "/v1/responses/{response_id}",
    summary="A response, or its events",
    response_model=dict[str, Any],
    responses=MAY_STREAM,
)
async def get_response(
    job: FoundResponse,
    request: Request,
    gateway: CurrentGateway,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=_BEFORE_FIRST, le=_MAX_NUMBER)] = _BEFORE_FIRST,
) -> Response:
    """As it is now; with `stream` its events after `starting_after`, without gap or repeat."""
    if stream:
        return _stream(request, gateway, job, starting_after)
    return JSONResponse(_as_response(gateway, job))


@router.post("/v1/responses/{response_id}/cancel", summary="Stop a response", response_model=dict[str, Any])
async def cancel_response(job: FoundResponse, gateway: CurrentGateway) -> Response:
    """Its calls are aborted in the engine. One that has ended stays as it is."""
    ended = await cancel_and_wait(gateway, job, CANCEL_WAIT_S)
    return JSONResponse(_as_response(gateway, ended))


@router.delete("/v1/responses/{response_id}", summary="Forget a response")
async def delete_response(job: FoundResponse, gateway: CurrentGateway) -> dict[str, Any]:
    """One that runs is cancelled first."""
    await cancel_and_wait(gateway, job, CANCEL_WAIT_S)
    await gateway.store.delete(job.id, job.owner)
    return {"id": PREFIX["response"] + job.id, "object": "response", "deleted": True}


def _as_response(gateway: Gateway, job: Job) -> dict[str, Any]:
    result = load_result(gateway, job) if job.state is JobState.COMPLETED else None
    return response_object(job, result)


def _stream(request: Request, gateway: Gateway, job: Job, after: int) -> EventStream:
    events = ResponseEvents(job)
    frames = _frames(gateway, get_client_tracker(request), events, job, after)
    # It tells by itself that the gateway stops, in a way that clients raise.
    shown = events.shown
    return EventStream(frames, None, keep_alive_s=KEEP_ALIVE_S, keep_alive_text=lambda: f"ping {shown.progress}")


async def _frames(  # the parts of one stream
    gateway: Gateway, tracker: ClientTracker, events: ResponseEvents, job: Job, after: int
) -> AsyncIterator[bytes]:
    async with tracker.connect(job) as connection:
        try:
            for event in events.open():
                if event["sequence_number"] > after:
                    yield frame(event, event=event["type"])
            async with aclosing(follow(gateway, job)) as records:
                async for record in records:
                    for event in events.add(record):
                        if event["sequence_number"] > after:
                            yield frame(event, event=event["type"])
            ended = await find_again(gateway, job)
            result = load_result(gateway, ended) if ended.state is JobState.COMPLETED else None
        except (ApiError, LongfoldError) as error:
            yield frame(error_data(error))
            return
        for event in events.close(ended, result):
            if event["sequence_number"] > after:
                yield frame(event, event=event["type"])
        connection.delivered = True
