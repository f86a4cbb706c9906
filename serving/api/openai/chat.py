"""/v1/chat/completions: a question about documents, or a conversation with the served model, as OpenAI's clients ask.

Nothing runs here: the request becomes a job, and what happens to the job is told in chat completion chunks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from pipeline.errors import LongfoldError
from serving.api.auth import require
from serving.api.clients import ClientTracker, get_client_tracker
from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway, Gateway, Principal
from serving.api.native.submit import read_repetition
from serving.api.openai.fields import CHAT_FIELDS, ChatBody, body_schema, parse_body
from serving.api.openai.follow import error_data, find_again, follow, load_result, wait_for_end
from serving.api.openai.input import read_chat
from serving.api.openai.output import chat_chunk, chat_completion, chat_usage_chunk
from serving.api.openai.submit import Admission
from serving.api.stream.progress import StreamedJob
from serving.api.stream.sse import KEEP_ALIVE_S, MAY_STREAM, EventStream, frame
from serving.jobs.job import Job

router = APIRouter(tags=["openai"])

_WRITTEN_ANEW = "The replica that wrote this message was lost, and another wrote a different one. Ask again."


@router.post(
    "/v1/chat/completions",
    summary="Ask about documents, or put a conversation to the model",
    response_model=dict[str, Any],
    responses=MAY_STREAM,
    openapi_extra=body_schema(
        ChatBody, CHAT_FIELDS, {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}
    ),
)
async def create_chat_completion(
    request: Request, gateway: CurrentGateway, principal: Annotated[Principal, Depends(require("infer"))]
) -> Response:
    """The model's name is a strategy, `auto`, or the served model. See docs/api.md for what is used and ignored."""
    raw = await request.body()
    parsed = read_chat(parse_body(ChatBody, raw))
    repetition = await read_repetition(request)
    admission = Admission(gateway=gateway, principal=principal, parsed=parsed, surface="chat")
    job = await admission.submit(repetition)
    request.state.job_id = job.id
    tracker = get_client_tracker(request)
    if not parsed.stream:
        ended = await wait_for_end(gateway, tracker, job, request.receive)
        return JSONResponse(chat_completion(ended, load_result(gateway, ended)))
    stream = ChatStream(gateway, tracker, job, include_usage=parsed.include_usage)
    # It tells by itself that the gateway stops, in a way that clients raise.
    return EventStream(
        stream.frames(),
        None,
        keep_alive_s=KEEP_ALIVE_S,
        keep_alive_text=lambda: f"ping {stream.shown.progress}",
    )


class ChatStream:
    """A job as chat completion chunks."""

    def __init__(self, gateway: Gateway, tracker: ClientTracker, job: Job, *, include_usage: bool) -> None:
        self._gateway = gateway
        self._tracker = tracker
        self._job = job
        self._include_usage = include_usage
        self._reasoning = job.request.presentation.get("progress") == "reasoning"
        self.shown = StreamedJob()

    async def frames(self) -> AsyncIterator[bytes]:
        """The role at once, perhaps progress, the answer when it is there, what it rests on, [DONE].

        A conversation's next message comes while it is written.
        """
        async with self._tracker.connect(self._job) as connection:
            yield self._chunk({"role": "assistant", "content": ""})
            try:
                async with aclosing(follow(self._gateway, self._job)) as records:
                    async for record in records:
                        line, added = self.shown.add(record)
                        if added:
                            yield self._chunk({"content": added})
                        if line and self._reasoning and not self.shown.sent:
                            # Clients disagree about the name; both are sent.
                            yield self._chunk({"reasoning": f"{line}\n", "reasoning_content": f"{line}\n"})
                ended = await find_again(self._gateway, self._job)
                result = load_result(self._gateway, ended)
                rest = self._rest(result.text)
            except (ApiError, LongfoldError) as error:
                yield frame(error_data(error))
                return
            yield self._chunk({"content": rest})
            last = chat_chunk(ended, {}, finish_reason=result.finish_reason) | {"longfold": dict(result.longfold)}
            yield frame(self._with_usage(last))
            if self._include_usage:
                yield frame(chat_usage_chunk(ended, result))
            connection.delivered = True
            yield frame("[DONE]")

    def _rest(self, text: str) -> str:
        """What the client was not told yet. Raises ApiError if it was told something else."""
        rest = self.shown.rest(text)
        if rest is None:
            raise ApiError(503, _WRITTEN_ANEW, "written_anew", retry=True)
        return rest

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return frame(self._with_usage(chat_chunk(self._job, delta)))

    def _with_usage(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Where usage is asked for, every chunk but the last has it empty."""
        return chunk | ({"usage": None} if self._include_usage else {})
