"""What a job does between its claim and its end: run a strategy on documents, or put messages to the model."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Protocol

from pipeline.dispatch.retry import error_class
from pipeline.documents.document import Document
from pipeline.errors import CallerError
from pipeline.findings.answer import Answer
from pipeline.llm.budget import TokenBudget
from pipeline.llm.chat import chat_call
from pipeline.llm.model import LIMIT_REACHED, Call, CallFailed, Sampling
from pipeline.run.answer_json import answer_record
from pipeline.run.events import Event, Written
from pipeline.run.meter import Meter
from pipeline.run.request import OPTIONS, Limits, Request
from serving.jobs.job import Job, JobRequest
from serving.jobs.steps import step_options
from serving.jobs.usage import stage_records
from serving.session import OpenModel, Session
from serving.storage.document_ref import DocumentRef

Emit = Callable[[Event], None]
Result = Mapping[str, Any]

_SAMPLING = frozenset(field.name for field in fields(Sampling)) - {"choices"}


class Documents(Protocol):
    """Where the texts of jobs are kept; `FileStore` is."""

    async def load_document(self, refs: tuple[DocumentRef, ...]) -> Document: ...


async def run_strategy(job: Job, documents: Documents, session: Session, emit: Emit, *, owner: str) -> Result:
    """Answer the job's question. Raises what the run raises, and the error of a chunk that must not fail.

    Raises RunPaused before a step at which the job is to pause.
    """
    request = pipeline_request(job.request)
    document = await documents.load_document(job.request.documents)
    # Splitting takes seconds for a book. Here it is done beside the event loop, and `ask` finds it done.
    plan = await asyncio.to_thread(session.model.plan, document, request)
    answer = await session.ask(
        document, request, emit, fresh=job.request.fresh, owner=owner, run_id=job.id, steps=step_options(job)
    )
    _refuse_failures(answer, strict=job.request.on_chunk_error == "strict")
    return answer_record(answer, document) | {
        "usage_by_stage": stage_records(answer.usage),
        "seconds_by_stage": {stage.value: round(seconds, 3) for stage, seconds in answer.seconds.items()},
        "strategy": plan.strategy,
        "model": session.model.profile.name,
    }


async def run_chat(job: Job, session: Session, emit: Emit, *, owner: str) -> Result:
    """One call with the job's messages. Raises the call's failure under its own class."""
    call = await asyncio.to_thread(_chat_call, job, session.model)
    call = replace(call, on_text=lambda text: emit(Written(text=text)))
    meter = Meter(session.journaled(owner=owner, run_id=job.id, emit=emit), Limits(), emit)
    outcome = await meter.complete(call)
    if isinstance(outcome, CallFailed):
        raise error_class(outcome.error)(outcome.message)
    return {
        "text": outcome.text,
        "finish_reason": outcome.finish_reason,
        "usage": asdict(outcome.usage),
        "model": session.model.profile.name,
    }


def pipeline_request(asked: JobRequest) -> Request:
    """The run that a job asks for. Raises CallerError for an option that there is not."""
    unknown = sorted(set(asked.options) - {*OPTIONS})
    if unknown:
        raise CallerError(f"There is no option {unknown[0]!r}; the options are {', '.join(sorted(OPTIONS))}.")
    return Request(
        question=asked.question,
        task=asked.task,
        choices=tuple(asked.choices),
        strategy=asked.strategy,
        limits=Limits(**asked.limits),  # type: ignore[arg-type]  # JSON has one kind of number
        **asked.options,
    )


def _chat_call(job: Job, model: OpenModel) -> Call:
    sampling = {name: value for name, value in job.request.sampling.items() if value is not None}
    unknown = sorted(set(sampling) - _SAMPLING)
    if unknown:
        raise CallerError(f"{unknown[0]!r} cannot be set; what can is {', '.join(sorted(_SAMPLING))}.")
    if isinstance(sampling.get("json_schema"), dict):
        sampling["json_schema"] = json.dumps(sampling["json_schema"])
    if sampling.get("temperature"):  # drawn anew for every job, and the same when one is resumed
        sampling.setdefault("seed", int.from_bytes(hashlib.sha256(job.id.encode()).digest()[:4]) >> 1)
    budget = TokenBudget(model.profile.context_tokens)
    return chat_call(job.request.messages, model.tokenizer, budget, **sampling)


def _refuse_failures(answer: Answer, *, strict: bool) -> None:
    """Nothing read is no success, whatever the policy; under the strict one a single failed chunk is none."""
    coverage = answer.coverage
    failed = [chunk for chunk in coverage.failed_chunks if chunk.error != LIMIT_REACHED]
    if failed and (strict or not coverage.chunks_read):
        message = f"{len(failed)} of {coverage.chunks} chunks could not be read; the first: {failed[0].message}"
        raise error_class(failed[0].error)(message)
