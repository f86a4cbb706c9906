"""A job and its result in the shapes of OpenAI's API. Pure: from records to JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.tasks import task_for
from serving.api.errors import from_record
from serving.api.ids import PREFIX
from serving.jobs.events import progress_text
from serving.jobs.job import Job, JobRequest, JobState

NOT_FOUND = {
    "question_answering_zh": "文档中没有说明。",
    "": "The document does not say.",
}
"""What stands for an answer where there is none, by the task's language; `longfold.found` is the machine's word."""
STATUS = {
    JobState.QUEUED: "queued",
    JobState.RUNNING: "in_progress",
    JobState.PAUSED: "in_progress",
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatResult:
    """What a finished job has to say on OpenAI's surface."""

    text: str
    finish_reason: str
    """stop or length."""
    prompt_tokens: int
    """Document and question, each counted once, whatever the strategy spent on them."""
    completion_tokens: int
    longfold: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()


def answer_text(request: JobRequest, result: Mapping[str, Any]) -> str:
    """The answer; a plain sentence if the document does not say."""
    if request.kind == "chat":
        return str(result.get("text", ""))
    if result.get("found") and str(result.get("answer", "")).strip():
        return str(result["answer"])
    return NOT_FOUND.get(task_for(request.task, asked_question(request)).name, NOT_FOUND[""])


def asked_question(request: JobRequest) -> str:
    """The question as it was found, without the instructions in front of it."""
    return str(request.presentation.get("question") or request.question)


def chat_result(job: Job, evidence: Sequence[Mapping[str, Any]], completion_tokens: int) -> ChatResult:
    """Of a completed job; `evidence` is cited and `completion_tokens` counts `answer_text`."""
    found = job.result or {}
    shown = evidence if job.request.presentation.get("evidence", True) else ()
    length = found.get("finish_reason") == "length"
    return ChatResult(
        text=answer_text(job.request, found),
        finish_reason="length" if length else "stop",
        prompt_tokens=_prompt_tokens(job),
        completion_tokens=int(_chat_usage(job).get("output_tokens", completion_tokens)),
        longfold=longfold_record(job, shown),
        evidence=shown,
    )


def longfold_record(job: Job, evidence: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The object `longfold` of an answer: the plan, and what is known of the result."""
    record: dict[str, Any] = {"job_id": PREFIX["job"] + job.id, "plan": plan_record(job)}
    if ignored := job.request.presentation.get("ignored"):
        record["ignored"] = list(ignored)
    if (result := job.result) is None:
        return record
    record["usage_by_stage"] = dict(result.get("usage_by_stage") or job.usage or {})
    if job.request.kind == "chat":
        return record
    for name in ("found", "explanation", "confidence", "probability"):
        record[name] = result.get(name)
    coverage = dict(result.get("coverage") or {})
    coverage["failed"] = len(coverage.get("failed_chunks") or ())
    record["coverage"] = coverage
    if job.request.presentation.get("evidence", True):
        record["evidence"] = [dict(item) for item in evidence]
        record["conflicts"] = list(result.get("conflicts") or ())
    for name in ("warnings", "stopped_by", "seconds_by_stage", "total_seconds"):
        if result.get(name):
            record[name] = result[name]
    return record


def plan_record(job: Job) -> dict[str, Any]:
    """How document and question were found, and what the run will do once it has said so."""
    request, shown = job.request, job.request.presentation
    plan: dict[str, Any] = {"found_by": shown.get("found_by", "")}
    if request.kind == "chat":
        return plan | {"strategy": "pass_through", "messages": len(request.messages)}
    plan |= {
        "question": asked_question(request),
        "documents": [
            {"name": d.name, "file_id": d.file_id or None, "tokens": d.tokens or None, "characters": d.characters}
            for d in request.documents
        ],
        "left_out": shown.get("left_out", 0),
        "task": request.task,
        "strategy": request.strategy,
    }
    if shown.get("instructions"):
        plan["instructions"] = shown["instructions"]
    return plan | {name: value for name, value in (job.plan or {}).items() if name != "graph"}


def _prompt_tokens(job: Job) -> int:
    if job.request.kind == "chat":
        return int(_chat_usage(job).get("prompt_tokens", 0))
    planned = int((job.plan or {}).get("document_tokens", 0))
    documents = planned or sum(document.tokens for document in job.request.documents)
    return documents + int(job.request.presentation.get("question_tokens", 0))


def _chat_usage(job: Job) -> Mapping[str, Any]:
    """Of a pass-through, what its one call used; of a run nothing, its stages have their own."""
    usage = (job.result or {}).get("usage") if job.request.kind == "chat" else None
    return usage if isinstance(usage, Mapping) else {}


def chat_usage(result: ChatResult) -> dict[str, int]:
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": result.prompt_tokens + result.completion_tokens,
    }


def chat_completion(job: Job, result: ChatResult) -> dict[str, Any]:
    """The whole answer of a chat that was not streamed."""
    message = {"role": "assistant", "content": result.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": result.finish_reason}
    return {
        **_chat_head(job, "chat.completion"),
        "choices": [choice],
        "usage": chat_usage(result),
        "longfold": dict(result.longfold),
    }


def chat_chunk(job: Job, delta: Mapping[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
    """One piece of a streamed chat."""
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    return {**_chat_head(job, "chat.completion.chunk"), "choices": [choice]}


def chat_usage_chunk(job: Job, result: ChatResult) -> dict[str, Any]:
    """The last piece, if usage was asked for."""
    return {**_chat_head(job, "chat.completion.chunk"), "choices": [], "usage": chat_usage(result)}


def _chat_head(job: Job, kind: str) -> dict[str, Any]:
    return {
        "id": PREFIX["chat"] + job.id,
        "object": kind,
        "created": int(job.created_unix_s),
        "model": job.request.presentation.get("model", job.request.strategy),
        "system_fingerprint": None,
    }


def message_id(job: Job) -> str:
    return f"msg_{job.id}"


def file_citations(result: ChatResult) -> list[dict[str, Any]]:
    """A citation of each file that the evidence stands in, at the end of the text; quotes and places are in
    `longfold.evidence`."""
    files: dict[str, str] = {}
    for item in result.evidence:
        if item.get("file_id"):
            files.setdefault(str(item["file_id"]), str(item.get("document", "")))
    return [
        {"type": "file_citation", "file_id": file_id, "filename": name, "index": len(result.text)}
        for file_id, name in files.items()
    ]


def output_message(job: Job, result: ChatResult) -> dict[str, Any]:
    """The one item of a response's output."""
    status = "incomplete" if result.finish_reason == "length" else "completed"
    return begun_message(job) | {"status": status, "content": [output_text(result.text, file_citations(result))]}


def begun_message(job: Job) -> dict[str, Any]:
    """The same before any of its text is there."""
    return {"id": message_id(job), "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def output_text(text: str = "", annotations: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The one part of a message's content."""
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def response_object(job: Job, result: ChatResult | None = None, *, status: str = "") -> dict[str, Any]:
    """A response as it stands; `result` of a completed job. `status` shows it as it stood earlier."""
    shown = job.request.presentation
    echo = dict(shown.get("echo") or {})
    cut = result is not None and result.finish_reason == "length"
    now = status or ("incomplete" if cut else STATUS[job.state])
    metadata = dict(job.request.metadata)
    if now == "in_progress" and not status and (progress := progress_text(job.progress)):
        metadata["progress"] = progress
    return {
        "id": PREFIX["response"] + job.id,
        "object": "response",
        "created_at": int(job.created_unix_s),
        "completed_at": int(job.finished_unix_s) if now == "completed" and job.finished_unix_s else None,
        "status": now,
        "background": job.background,
        "model": shown.get("model", job.request.strategy),
        "error": _response_error(job) if now == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if now == "incomplete" and cut else None,
        "instructions": echo.get("instructions"),
        "max_output_tokens": echo.get("max_output_tokens"),
        "metadata": metadata,
        "output": [output_message(job, result)] if result else [],
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "store": echo.get("store", True),
        "temperature": echo.get("temperature"),
        "text": echo.get("text") or {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": echo.get("top_p"),
        "truncation": "disabled",
        "usage": _response_usage(result) if result else None,
        "longfold": dict(result.longfold) if result else longfold_record(job),
    }


def _response_usage(result: ChatResult) -> dict[str, Any]:
    return {
        "input_tokens": result.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": result.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": result.prompt_tokens + result.completion_tokens,
    }


def _response_error(job: Job) -> dict[str, Any]:
    """OpenAI has a closed list of codes; ours goes beside it."""
    error = from_record(job.error or {})
    code = "invalid_prompt" if error.status_code < 500 and error.status_code != 429 else "server_error"
    code = "rate_limit_exceeded" if error.status_code == 429 else code
    return {"code": code, "message": error.message, "type": error.type, "longfold_code": error.code}
