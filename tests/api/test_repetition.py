"""OpenAI's clients repeat themselves silently; a run is made once all the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from serving.api.app import begin_stop
from tests.api.openai_rig import GREETING, Service, about_file, service

__all__ = ["service"]

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


async def test_silent_retries_after_time_outs_find_the_run_of_the_first_request(service: Service) -> None:
    service.slow_s = 1.5
    client = service.client(timeout=0.7, max_retries=4)
    answer = await client.chat.completions.create(model="model", messages=HELLO)
    assert answer.choices[0].message.content == GREETING
    assert len(service.model.calls) == 1
    assert len(await service.jobs()) == 1


async def test_the_same_request_without_a_sign_of_repetition_is_another_run(service: Service) -> None:
    client = service.client()
    for _ in range(2):
        await client.chat.completions.create(model="model", messages=HELLO)
    assert len(await service.jobs()) == 2


async def test_twenty_requests_with_one_idempotency_key_are_one_run(service: Service) -> None:
    client = service.client()
    file_id = await service.upload()
    asked = [
        client.chat.completions.create(
            model="mapreduce",
            messages=about_file(file_id),  # type: ignore[arg-type]
            extra_headers={"Idempotency-Key": "the-same"},
        )
        for _ in range(20)
    ]
    answers = await asyncio.gather(*asked)
    assert {answer.choices[0].message.content for answer in answers} == {"Anselm"}
    assert len({answer.id for answer in answers}) == 1
    assert len(await service.jobs()) == 1


async def test_an_idempotency_key_with_another_body_is_refused_and_not_retried(service: Service) -> None:
    headers = {"Idempotency-Key": "k"}
    body: dict[str, Any] = {"model": "model", "messages": HELLO}
    first = await service.rig.client.post("/v1/chat/completions", json=body, headers=headers)
    assert first.status_code == 200
    other = await service.rig.client.post("/v1/chat/completions", json=body | {"seed": 1}, headers=headers)
    assert (other.status_code, other.headers["x-should-retry"]) == (422, "false")


async def test_a_retry_within_the_grace_keeps_the_run(service: Service) -> None:
    service.slow_s = 0.8
    body: dict[str, Any] = {"model": "model", "messages": HELLO, "stream": True}
    async with service.rig.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        await anext(answer.aiter_lines())
    again = await service.rig.client.post(
        "/v1/chat/completions", content=answer.request.content, headers={"x-stainless-retry-count": "1"}
    )
    told = [json.loads(line[6:]) for line in again.text.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in told) == GREETING
    assert len(await service.jobs()) == 1


async def test_a_stopping_gateway_ends_its_streams_with_an_error_and_leaves_the_run(service: Service) -> None:
    service.slow_s = 1.0
    stream = await service.client().chat.completions.create(model="model", messages=HELLO, stream=True)
    await anext(aiter(stream))
    begin_stop(service.rig.gateway)
    with pytest.raises(openai.APIError, match="job goes on") as failure:
        async for _ in stream:
            pass
    assert failure.value.code == "stopping"
    await service.until_state("completed")
    with pytest.raises(openai.InternalServerError) as refusal:
        await service.client().chat.completions.create(model="model", messages=HELLO)
    assert refusal.value.response.headers["retry-after"]
    assert "x-should-retry" not in refusal.value.response.headers
