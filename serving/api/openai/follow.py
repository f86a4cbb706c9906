"""Waiting for a job on behalf of a client: its events, its end, its result; and what is told when it went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from starlette.types import Message

from pipeline.errors import LongfoldError
from serving.api.clients import ClientTracker
from serving.api.errors import ApiError, from_longfold, from_record
from serving.api.gateway import Gateway
from serving.api.ids import PREFIX, no_such_job
from serving.api.native.citations import cite
from serving.api.openai.output import ChatResult, answer_text, chat_result
from serving.api.stream.sse import until_stopping
from serving.jobs.job import TERMINAL, EventRecord, Job, JobState

CLIENT_CLOSED_REQUEST = 499


async def follow(gateway: Gateway, job: Job) -> AsyncGenerator[EventRecord]:
    """Every event of the job from the first on. Raises Stopping when the gateway stops: the job goes on."""
    async with aclosing(until_stopping(gateway.feed.follow(job.id), gateway.stopping)) as records:
        async for record in records:
            if record is not None:
                yield record


async def wait_for_end(
    gateway: Gateway, tracker: ClientTracker, job: Job, receive: Callable[[], Awaitable[Message]]
) -> Job:
    """The job as it ended. Raises ApiError if the client goes away, the gateway stops or the job is deleted."""
    async with tracker.connect(job) as connection:
        ended = asyncio.create_task(gateway.feed.wait_terminal(job.id))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, gone):
                task.cancel()
            await asyncio.gather(ended, gone, return_exceptions=True)
        if ended.cancelled():
            raise ApiError(CLIENT_CLOSED_REQUEST, "The client has gone.", "client_gone")
        ended.result()
        known = await find_again(gateway, job)
        connection.delivered = True
        return known


async def find_again(gateway: Gateway, job: Job) -> Job:
    """The job as it is now. Raises ApiError 404 if it was deleted."""
    known = await gateway.store.find(job.id, job.owner)
    if known is None:
        raise no_such_job(PREFIX[job.surface] + job.id)
    return known


def load_result(gateway: Gateway, job: Job) -> ChatResult:
    """What a job that ended has to say. Raises ApiError if it failed or was cancelled."""
    if job.state is JobState.FAILED:
        raise from_record(job.error or {})
    if job.state is not JobState.COMPLETED:
        raise ApiError(400, "The job was cancelled.", "job_cancelled")
    evidence = cite((job.result or {}).get("evidence") or (), job.request.documents)
    answer = answer_text(job.request, job.result or {})
    return chat_result(job, evidence, gateway.model.tokenizer.count(answer))


async def cancel_and_wait(gateway: Gateway, job: Job, timeout_s: float) -> Job:
    """Ask for the end of a job, and wait for it a little; a running one ends when its calls have stopped."""
    asked = await gateway.store.request_cancel(job.id, job.owner)
    if asked is not None and asked.state not in TERMINAL:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await gateway.feed.wait_terminal(job.id)
    return await find_again(gateway, job)


def error_data(error: ApiError | LongfoldError) -> dict[str, Any]:
    """The data of a stream that breaks: OpenAI's clients raise what stands under `error`."""
    known = error if isinstance(error, ApiError) else from_longfold(error)
    return {"error": known.body()["error"]}


async def _until_gone(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
