"""From a request to a job: its documents, its lane, what it may cost, and whether it was made before."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fastapi import Request

from pipeline.documents.document import Document
from pipeline.errors import CallerError, QuestionTooLong
from serving.api.errors import ApiError, from_longfold
from serving.api.gateway import Gateway, Principal, find_file
from serving.estimate import Estimate, estimate
from serving.jobs.job import Job, JobRequest, Lane, NewJob
from serving.jobs.work import pipeline_request
from serving.storage.document_ref import DocumentRef

_CHARACTERS_PER_TOKEN = 3
"""Fewer than in most texts, so that a document of unknown tokens is rather taken for a long one."""
_PROMPT_TOKENS = 1024
"""What a call needs beside the document: instructions, question, answer."""
_LONGEST_KEY_CHARS = 255
_SENTENCE = "The shortest document."


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """How a request says that it was sent before."""

    idempotency_key: str
    body_sha256: str
    is_retry: bool
    """OpenAI's clients send no key, but count their retries."""


async def read_repetition(request: Request) -> Repetition:
    """Raises ApiError 400 for a key that is none."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _LONGEST_KEY_CHARS or not key.isprintable():
        message = f"An Idempotency-Key has at most {_LONGEST_KEY_CHARS} printable characters."
        raise ApiError(400, message, "invalid_idempotency_key", "Idempotency-Key")
    count = request.headers.get("x-stainless-retry-count", "0")
    digest = hashlib.sha256(f"{request.scope['path']}\0".encode() + await request.body())
    return Repetition(
        idempotency_key=key, body_sha256=digest.hexdigest(), is_retry=count.isdecimal() and int(count[:9]) > 0
    )


async def find_documents(gateway: Gateway, principal: Principal, file_ids: Sequence[str]) -> tuple[DocumentRef, ...]:
    """The documents of uploads. ApiError 404 for an unknown or foreign id, 422 for a file that is no document."""
    found = []
    for place, file_id in enumerate(file_ids):
        param = f"file_ids.{place}"
        stored = await find_file(gateway, principal, file_id, param)
        if stored.document is None:
            reason = stored.error or f"it was uploaded with the purpose {stored.purpose!r}"
            raise ApiError(422, f"The file {stored.id} is no document: {reason}.", "not_a_document", param)
        found.append(stored.document)
    return tuple(found)


def document_tokens(request: JobRequest) -> int:
    """Of all documents, about."""
    return sum(ref.tokens or ref.characters // _CHARACTERS_PER_TOKEN for ref in request.documents)


def choose_lane(gateway: Gateway, request: JobRequest, *, extra_characters: int = 0) -> Lane:
    """Short if one call can read it all, with a text of so many characters that is not stored yet."""
    tokens = document_tokens(request) + extra_characters // _CHARACTERS_PER_TOKEN
    fits = tokens + _PROMPT_TOKENS <= gateway.model.profile.context_tokens
    return Lane.SHORT if fits else Lane.LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a job would wait for in the queue."""

    jobs: int
    """Queued before it."""
    running: int
    seconds: float | None
    """At least, until all of them are done; None if this machine was never measured with this model."""


async def estimate_wait(gateway: Gateway, owner: str, lane: Lane) -> Wait:
    """What a job that `owner` submits now waits for."""
    ahead = await gateway.store.queue_ahead(owner, lane)
    speed = gateway.speeds.find(gateway.model.profile.fingerprint)
    return Wait(jobs=ahead.jobs, running=ahead.running, seconds=round(ahead.tokens / speed, 1) if speed else None)


async def check_feasible(gateway: Gateway, request: JobRequest, *, question_param: str, options_param: str) -> None:
    """Raise ApiError 422 for what would fail the run whatever its document says: a question that is too long, options
    that leave no room for a chunk. It is planned for one sentence, which takes milliseconds."""
    asked = pipeline_request(request)
    if asked.strategy == "auto" and choose_lane(gateway, request) is Lane.LONG:
        # With a size of its own it chooses for a sentence what it will choose for the document.
        asked = replace(asked, chunk_tokens=asked.chunk_tokens or gateway.model.profile.context_tokens)
    try:
        await asyncio.to_thread(gateway.model.plan, Document.from_text(_SENTENCE, "text"), asked)
    except QuestionTooLong as error:
        raise from_longfold(error, question_param) from error
    except CallerError as error:
        raise from_longfold(error, options_param) from error


async def estimate_run(gateway: Gateway, document: Document, request: JobRequest) -> Estimate:
    """The plan and its price, computed in a thread: a long document takes seconds to split."""
    speed = gateway.speeds.find(gateway.model.profile.fingerprint)
    return await asyncio.to_thread(estimate, gateway.model, document, pipeline_request(request), speed)


async def submit(  # what an admission consists of
    gateway: Gateway,
    principal: Principal,
    request: JobRequest,
    repetition: Repetition,
    *,
    surface: Literal["job", "chat", "response"],
    background: bool = True,
) -> tuple[Job, bool]:
    """Accept the job, or find the one this request made before (then False).

    Only a key with a budget of tokens has its run estimated here, to reserve what it may take at most.
    """
    tokens = 0
    if principal.key and principal.key.tokens_per_day is not None:
        document = await gateway.files.load_document(request.documents)
        plan = (await estimate_run(gateway, document, request)).plan
        tokens = plan.prompt_tokens + plan.output_tokens
    new = NewJob(
        owner=principal.owner,
        key_id=principal.key_id,
        surface=surface,
        request=request,
        lane=choose_lane(gateway, request),
        body_sha256=repetition.body_sha256,
        idempotency_key=repetition.idempotency_key,
        attach_to_same_body=repetition.is_retry,
        reserve_tokens=tokens,
        work_tokens=document_tokens(request),
        background=background,
        gateway_id="" if background else gateway.files.presence.id,
    )
    return await gateway.store.submit(new)
