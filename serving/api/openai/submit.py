"""From what a client of OpenAI's dialect asks to a job in the store: model, document and question, cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.llm.chat import Message, encode_chat
from pipeline.tasks import TASKS
from pipeline.text import duration
from serving.api.errors import ApiError
from serving.api.gateway import Gateway, Principal
from serving.api.native.bodies import check_options
from serving.api.native.submit import (
    Repetition,
    Wait,
    check_feasible,
    choose_lane,
    estimate_run,
    estimate_wait,
    submit,
)
from serving.api.openai.attachments import store_attachments
from serving.api.openai.fields import Extension
from serving.api.openai.find_document import Ambiguous, Conversation, DocumentQuestion, Part, Window, find_document
from serving.api.openai.input import ParsedRequest
from serving.api.openai.models import ModelChoice, choose_model
from serving.jobs.job import Job, JobRequest, Lane, NewJob

MIN_ANSWER_TOKENS = 256
"""Room that a prompt must leave to be passed through, unless the client asks for a shorter answer. A longer one that it
allows is cut to what the context holds: many clients allow more by default."""
MAX_ANSWER_TOKENS = 2048
"""Of a pass-through whose client names no length."""
_MAX_CHARS_PER_TOKEN = 6
_MAX_READINGS = 10
"""A run computes at most so many tokens per character of its documents; only what may be near the limit is planned."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """One request on its way to becoming a job."""

    gateway: Gateway
    principal: Principal
    parsed: ParsedRequest
    surface: Literal["chat", "response"]

    async def submit(self, repetition: Repetition) -> Job:
        """The job of this request: a new one, or the one that an earlier sending of it made.

        Raises ApiError or a LongfoldError; nothing is stored then but the files that came with it.
        """
        self.gateway.check_running()
        choice = choose_model(self.parsed.model, self.gateway.model.profile.name)
        self.principal.check_model(choice.id)
        _check_task(self.parsed.longfold)
        found, prompt_tokens = await self._find(choice)
        if isinstance(found, Conversation):
            return await self._converse(choice, prompt_tokens, repetition)
        request = await self._reading(choice, found)
        if not (self.parsed.stream or self.parsed.background):
            await refuse_long_wait(request, self.gateway, self.principal)
        job, _ = await submit(
            self.gateway,
            self.principal,
            request,
            repetition,
            surface=self.surface,
            background=self.parsed.background,
        )
        return job

    async def _converse(self, choice: ModelChoice, prompt_tokens: int, repetition: Repetition) -> Job:
        request = self._conversation(choice, prompt_tokens)
        if not (self.parsed.stream or self.parsed.background):
            await refuse_long_queue(self.gateway, self.principal)
        limited = self.principal.key is not None and self.principal.key.tokens_per_day is not None
        job, _ = await self.gateway.store.submit(
            NewJob(
                owner=self.principal.owner,
                key_id=self.principal.key_id,
                surface=self.surface,
                request=request,
                lane=Lane.SHORT,
                body_sha256=repetition.body_sha256,
                idempotency_key=repetition.idempotency_key,
                attach_to_same_body=repetition.is_retry,
                reserve_tokens=prompt_tokens + int(request.sampling["max_output_tokens"]) if limited else 0,
                work_tokens=prompt_tokens,
                background=self.parsed.background,
                gateway_id="" if self.parsed.background else self.gateway.files.presence.id,
            )
        )
        return job

    async def _find(self, choice: ModelChoice) -> tuple[Conversation | DocumentQuestion, int]:
        """What is document and question, and how long the conversation is as one prompt."""
        parsed, tokenizer = self.parsed, self.gateway.model.tokenizer
        texts = await asyncio.to_thread(tokenizer.encode_contents, [part.text for part in parsed.parts])
        prompt_tokens = 0
        if not any(part.file for part in parsed.parts):
            prompt_tokens = await asyncio.to_thread(_count_prompt, parsed.messages(), tokenizer)
        window = Window(
            context_tokens=self.gateway.model.profile.context_tokens,
            prompt_tokens=prompt_tokens,
            output_tokens=min(parsed.sampling.get("max_output_tokens", MIN_ANSWER_TOKENS), MIN_ANSWER_TOKENS),
        )
        if not choice.strategy:
            self._check_raw(choice, window)
            return Conversation(), prompt_tokens
        parts = [
            Part(role=part.role, message=part.message, text=part.text, tokens=len(ids), file=part.file_key)
            for part, ids in zip(parsed.parts, texts, strict=True)
        ]
        wants = bool(parsed.longfold.run_only)
        found = find_document(parts, window, files=parsed.longfold.file_ids, wants_reading=wants)
        if isinstance(found, Ambiguous):
            raise ApiError(400, found.message, found.code, parsed.messages_param)
        return found, prompt_tokens

    def _check_raw(self, choice: ModelChoice, window: Window) -> None:
        """The served model itself reads no documents and obeys nothing that is for reading them."""
        extension = self.parsed.longfold
        named = "longfold.file_ids" if extension.file_ids else extension.run_only
        if named := next((part.param for part in self.parsed.parts if part.file), named):
            message = f"{choice.id} is the model itself; about files, ask the model 'auto'."
            raise ApiError(400, message, "unsupported_parameter", named)
        if not window.fits:
            raise ApiError(
                400,
                f"The messages have {window.prompt_tokens} tokens and need {window.output_tokens} for the answer; the "
                f"context of {choice.id} has {window.context_tokens}. Ask the model 'auto' about a document instead.",
                "context_length_exceeded",
                self.parsed.messages_param,
            )

    def _conversation(self, choice: ModelChoice, prompt_tokens: int) -> JobRequest:
        parsed = self.parsed
        room = self.gateway.model.profile.context_tokens - prompt_tokens
        return JobRequest(
            kind="chat",
            strategy=choice.strategy,
            messages=parsed.messages(),
            sampling={
                **parsed.sampling,
                "max_output_tokens": min(room, parsed.sampling.get("max_output_tokens", MAX_ANSWER_TOKENS)),
            },
            metadata=parsed.metadata,
            presentation=self._presentation(found_by="fits the window", ignored=list(parsed.ignored)),
        )

    async def _reading(self, choice: ModelChoice, found: DocumentQuestion) -> JobRequest:
        parsed, extension = self.parsed, self.parsed.longfold
        if "json_schema" in parsed.sampling:
            raise ApiError(
                400,
                "What a strategy answers is text with evidence, not JSON of a given shape. Leave the format out; the "
                "object `longfold` has the answer's parts.",
                "unsupported_parameter",
                parsed.format_param,
            )
        check_options(choice.strategy, extension.options, "longfold.options")
        question = "\n\n".join(filter(None, (found.instructions, found.question)))
        request = JobRequest(
            question=question,
            strategy=choice.strategy,
            task=extension.task_name,
            choices=tuple(extension.choices),
            documents=await store_attachments(found, parsed.parts, self.gateway, self.principal),
            options=extension.options.model_dump(exclude_unset=True, exclude_none=True),
            limits=extension.limits.model_dump(exclude_unset=True, exclude_none=True),
            on_chunk_error=extension.on_chunk_error,
            metadata=parsed.metadata,
            presentation=self._presentation(
                found_by=found.found_by,
                ignored=[*parsed.ignored, *parsed.sampling_params],
                question=found.question,
                question_tokens=await asyncio.to_thread(self.gateway.model.tokenizer.count, question),
                instructions=found.instructions,
                left_out=found.left_out,
            ),
        )
        await check_feasible(self.gateway, request, question_param=parsed.messages_param, options_param="longfold")
        return request

    def _presentation(self, **found: Any) -> Mapping[str, Any]:
        extension = self.parsed.longfold
        return {
            "model": self.parsed.model,
            "evidence": extension.evidence,
            "progress": extension.progress,
            "echo": dict(self.parsed.echo),
            **found,
        }


async def refuse_long_wait(request: JobRequest, gateway: Gateway, principal: Principal) -> None:
    """Raise ApiError use_background if a client that waits without a stream would probably wait too long.

    Clients give up after ten minutes and send the request again unseen, so such a run is not begun. What is queued
    before it counts. Where this machine was never measured with this model nothing is known, and nothing refused.
    """
    limit_s = gateway.settings.sync_limit_s
    speed = gateway.speeds.find(gateway.model.profile.fingerprint)
    if not speed:
        return
    wait = await estimate_wait(gateway, principal.owner, choose_lane(gateway, request))
    queued_s = wait.seconds or 0.0
    characters = sum(document.characters for document in request.documents)
    if queued_s + characters * _MAX_READINGS / speed <= limit_s:
        return
    low_s, high_s = characters / _MAX_CHARS_PER_TOKEN / speed, 0.0
    if queued_s + low_s <= limit_s:
        document = await gateway.files.load_document(request.documents)
        bounds = await estimate_run(gateway, document, request)
        low_s, high_s = bounds.seconds_low or 0.0, bounds.seconds_high or 0.0
        if queued_s + (low_s + high_s) / 2 <= limit_s:
            return
    expected = f"{duration(low_s)} to {duration(high_s)}" if high_s else f"more than {duration(low_s)}"
    raise _use_background(f"{expected}{_after(wait)}", limit_s)


async def refuse_long_queue(gateway: Gateway, principal: Principal) -> None:
    """The same for a single call, whose own time is short."""
    wait = await estimate_wait(gateway, principal.owner, Lane.SHORT)
    limit_s = gateway.settings.sync_limit_s
    if (wait.seconds or 0.0) > limit_s:
        raise _use_background(f"a few seconds{_after(wait)}", limit_s)


def _after(wait: Wait) -> str:
    if not wait.seconds:
        return ""
    return f", after at least {duration(wait.seconds)} behind {wait.jobs + wait.running} other jobs"


def _use_background(expected: str, limit_s: float) -> ApiError:
    return ApiError(
        400,
        f"Estimated {expected}; a request that waits without a stream may take {duration(limit_s)}. Use "
        "stream=true, or POST /v1/responses with background=true.",
        "use_background",
        "stream",
    )


def _count_prompt(messages: tuple[Message, ...], tokenizer: Any) -> int:
    return len(encode_chat(messages, tokenizer).token_ids)


def _check_task(extension: Extension) -> None:
    if extension.task is not None and extension.task not in TASKS:
        message = f"No task {extension.task[:64]!r}; the tasks are {', '.join(TASKS)}."
        raise ApiError(400, message, "invalid_value", "longfold.task")
