"""What is sent has the shapes of OpenAI's own models; its client by itself checks none of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import FileObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.api.openai_rig import QUESTION, Service, about_file, input_about_file, service

__all__ = ["service"]

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CONVERSATION = [{"role": "user", "content": "Hello"}]
CHAT_MODELS = ("mapreduce", "model")


async def stream(service: Service, path: str, body: dict[str, Any]) -> list[str]:
    async with service.rig.client.stream("POST", path, json=body | {"stream": True}) as answer:
        return [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]


@pytest.mark.parametrize("model", CHAT_MODELS)
async def test_chats_are_chat_completions(service: Service, model: str) -> None:
    messages = about_file(await service.upload()) if model == "mapreduce" else CONVERSATION
    body = {"model": model, "messages": messages}
    answer = (await service.rig.client.post("/v1/chat/completions", json=body)).json()
    assert ChatCompletion.model_validate(answer).choices[0].message.content
    options = {"stream_options": {"include_usage": True}, "longfold": {"progress": "reasoning"}}
    extra = options if model == "mapreduce" else {}
    *chunks, done = await stream(service, "/v1/chat/completions", body | extra)
    assert done == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(chunk)


@pytest.mark.parametrize("model", CHAT_MODELS)
async def test_responses_and_their_events_are_openais(service: Service, model: str) -> None:
    asked = input_about_file(await service.upload()) if model == "mapreduce" else CONVERSATION
    body = {"model": model, "input": asked, "longfold": {"progress": "reasoning"}, "text": {"format": {"type": "text"}}}
    answer = (await service.rig.client.post("/v1/responses", json=body)).json()
    assert Response.model_validate(answer).output_text
    events = [EVENTS.validate_python(json.loads(line)) for line in await stream(service, "/v1/responses", body)]
    assert events[0].type == "response.created"
    assert events[-1].response.output_text


async def test_files_and_models_are_openais(service: Service) -> None:
    file_id = await service.upload(QUESTION)
    assert FileObject.model_validate((await service.rig.client.get(f"/v1/files/{file_id}")).json()).id == file_id
    for listed in (await service.rig.client.get("/v1/models")).json()["data"]:
        Model.model_validate(listed)
