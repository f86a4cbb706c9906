"""The event stream of a response, computed from its job's events and result.

Nothing of it is stored: the same events give the same stream with the same numbers, so a client that resumes after
number N, on this gateway or another, gets N + 1 next, without gap or repeat. Every event is of a type that OpenAI's
clients know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from serving.api.openai.output import (
    ChatResult,
    begun_message,
    file_citations,
    message_id,
    output_message,
    output_text,
    response_object,
)
from serving.api.stream.progress import StreamedJob
from serving.jobs.job import EventRecord, Job, JobState

_ENDED = {
    "completed": "response.completed",
    "failed": "response.failed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",  # there is no type for a cancelled one; its status says so
}


class ResponseEvents:
    """One reading of a response's events from the first on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._number = -1
        self._reasoning = job.request.presentation.get("progress") == "reasoning"
        self._reasoned: list[str] = []
        self._begun = False
        self._message_begun = False
        self.shown = StreamedJob()

    def open(self) -> Iterator[dict[str, Any]]:
        """What every response begins with."""
        status = "queued" if self._job.background else "in_progress"
        snapshot = {"response": response_object(self._unended(), status=status)}
        yield self._event("response.created", **snapshot)
        if self._job.background:
            yield self._event("response.queued", **snapshot)

    def add(self, record: EventRecord) -> Iterator[dict[str, Any]]:
        """What an event of the job adds. A job that was given back and started again starts once here."""
        line, added = self.shown.add(record)
        if record.kind == "job.started" and not self._begun:
            self._begun = True
            yield self._event("response.in_progress", response=response_object(self._unended(), status="in_progress"))
        if added:
            yield from self._write(added)
        elif line and self._begun and self._reasoning and not self._message_begun:
            yield from self._reason(line)

    def close(self, job: Job, result: ChatResult | None) -> Iterator[dict[str, Any]]:
        """What the end adds; `job` is the job as it ended, `result` its answer if it has one."""
        response = response_object(job, result)
        if result is not None:
            yield from self._end_message(job, result)
        elif self._reasoned and not self._message_begun:
            yield from self._end_reasoning()
        if self._reasoned:
            response["output"] = [self._reasoning_item("completed"), *response["output"]]
        yield self._event(_ENDED[response["status"]], response=response)

    @property
    def _message_place(self) -> dict[str, Any]:
        return {"item_id": message_id(self._job), "output_index": 1 if self._reasoned else 0, "content_index": 0}

    def _write(self, added: str) -> Iterator[dict[str, Any]]:
        """More of the message, which begins with the first of it."""
        place = self._message_place
        if not self._message_begun:
            self._message_begun = True
            if self._reasoned:
                yield from self._end_reasoning()
            begun = begun_message(self._job)
            yield self._event("response.output_item.added", output_index=place["output_index"], item=begun)
            yield self._event("response.content_part.added", **place, part=output_text())
        yield self._event("response.output_text.delta", **place, delta=added, logprobs=[])

    def _end_message(self, job: Job, result: ChatResult) -> Iterator[dict[str, Any]]:
        """The rest of it, and the whole, which counts: a lost replica's part may have been written differently."""
        rest = self.shown.rest(result.text)
        if rest or not self._message_begun:
            yield from self._write(rest or "")
        place, item = self._message_place, output_message(job, result)
        for number, citation in enumerate(file_citations(result)):
            yield self._event(
                "response.output_text.annotation.added", **place, annotation_index=number, annotation=citation
            )
        yield self._event("response.output_text.done", **place, text=result.text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=item["content"][0])
        yield self._event("response.output_item.done", output_index=place["output_index"], item=item)

    def _reason(self, line: str) -> Iterator[dict[str, Any]]:
        """Progress as the summary of a reasoning item, which clients show apart from the answer."""
        place = {"item_id": self._reasoning_id, "output_index": 0, "summary_index": 0}
        if not self._reasoned:
            yield self._event("response.output_item.added", output_index=0, item=self._reasoning_item("in_progress"))
            yield self._event("response.reasoning_summary_part.added", **place, part=_summary(""))
        self._reasoned.append(line + "\n")
        yield self._event("response.reasoning_summary_text.delta", **place, delta=line + "\n")

    def _end_reasoning(self) -> Iterator[dict[str, Any]]:
        place = {"item_id": self._reasoning_id, "output_index": 0, "summary_index": 0}
        text = "".join(self._reasoned)
        yield self._event("response.reasoning_summary_text.done", **place, text=text)
        yield self._event("response.reasoning_summary_part.done", **place, part=_summary(text))
        yield self._event("response.output_item.done", output_index=0, item=self._reasoning_item("completed"))

    def _reasoning_item(self, status: str) -> dict[str, Any]:
        summary = [_summary("".join(self._reasoned))] if self._reasoned else []
        return {"id": self._reasoning_id, "type": "reasoning", "status": status, "summary": summary}

    @property
    def _reasoning_id(self) -> str:
        return f"rs_{self._job.id}"

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}

    def _unended(self) -> Job:
        """The job without what only its end knows: an early event reads the same whenever it is computed."""
        return replace(
            self._job, state=JobState.QUEUED, plan=None, progress=None, result=None, error=None, finished_unix_s=None
        )


def _summary(text: str) -> dict[str, str]:
    return {"type": "summary_text", "text": text}
