"""Responses through OpenAI's own client: in the background, streamed, resumed, cancelled, forgotten."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from serving.api import clients
from tests.api.openai_rig import BOOK, FACT, GREETING, Service, about_file, input_about_file, service

__all__ = ["service"]


async def finished(client: openai.AsyncOpenAI, response_id: str, service: Service) -> Any:
    found: list[Any] = []

    async def done() -> bool:
        found[:] = [await client.responses.retrieve(response_id)]
        return found[0].status not in ("queued", "in_progress")

    await service.until(done)
    return found[0]


async def test_a_background_response_is_accepted_at_once_and_polled(service: Service) -> None:
    service.slow_s = 1.0
    client = service.client()
    file_id = await service.upload()
    asked: Any = input_about_file(file_id)
    begun = await client.responses.create(
        model="auto", background=True, input=asked, instructions="Be brief.", metadata={"team": "a"}
    )
    assert (begun.status, begun.background, begun.output, begun.usage) == ("queued", True, [], None)
    seen = set()

    async def progressed() -> bool:
        polled = await client.responses.retrieve(begun.id)
        seen.add((polled.metadata or {}).get("progress", ""))
        return polled.status == "completed"

    await service.until(progressed)
    assert any(line.startswith("map ") and "/" in line for line in seen)
    ended = await client.responses.retrieve(begun.id)
    assert ended.output_text == "Anselm"
    assert ended.instructions == "Be brief."
    assert ended.metadata == {"team": "a"}
    item: Any = ended.output[0]
    [citation] = item.content[0].annotations
    assert (citation.type, citation.file_id, citation.filename, citation.index) == (
        "file_citation",
        file_id,
        "harbour.txt",
        len("Anselm"),
    )
    told: Any = ended.model_extra
    assert told["longfold"]["evidence"][0]["quote"] == FACT
    assert ended.usage is not None
    assert ended.usage.input_tokens > len(BOOK) / 4


async def test_a_response_may_be_waited_for(service: Service) -> None:
    answer = await service.client().responses.create(model="model", input="Hello")
    assert (answer.status, answer.output_text) == ("completed", GREETING)


async def test_a_stream_that_broke_is_resumed_without_gap_or_repeat(service: Service) -> None:
    service.slow_s = 0.05
    client = service.client()
    asked: Any = input_about_file(await service.upload())
    stream = await client.responses.create(
        model="mapreduce",
        input=asked,
        background=True,
        stream=True,
        extra_body={"longfold": {"progress": "reasoning"}},
    )
    numbers, response_id = [], ""
    async for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.created":
            response_id = event.response.id
        if len(numbers) == 6:
            break
    await stream.close()
    last: Any = None
    async for last in await client.responses.retrieve(response_id, stream=True, starting_after=numbers[-1]):
        numbers.append(last.sequence_number)
    assert numbers == list(range(len(numbers)))
    assert last.type == "response.completed"
    assert last.response.output_text == "Anselm"
    again = [e.sequence_number async for e in await client.responses.retrieve(response_id, stream=True)]
    assert again == numbers


async def test_the_clients_own_helper_accumulates_the_stream(service: Service) -> None:
    asked: Any = input_about_file(await service.upload())
    async with service.client().responses.stream(model="mapreduce", input=asked) as stream:
        final = await stream.get_final_response()
    assert final.output_text == "Anselm"


async def test_cancelling_stops_the_engine_and_is_told(service: Service) -> None:
    service.stalled = True
    client = service.client()
    asked: Any = input_about_file(await service.upload())
    begun = await client.responses.create(model="mapreduce", background=True, input=asked)
    await service.until(lambda: service.model.running > 0)
    stream = await client.responses.retrieve(begun.id, stream=True)
    cancelled = await client.responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert service.model.running == 0
    events: list[Any] = [event async for event in stream]
    assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")
    assert (await client.responses.cancel(begun.id)).status == "cancelled"


async def test_a_background_response_outlives_its_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "GRACE_S", 0.05)
    service.slow_s = 0.1
    asked: Any = input_about_file(await service.upload())
    client = service.client()
    stream = await client.responses.create(model="mapreduce", input=asked, background=True, stream=True)
    first: Any = await anext(aiter(stream))
    await stream.close()
    ended = await finished(client, first.response.id, service)
    assert ended.output_text == "Anselm"


async def test_a_deleted_response_is_gone(service: Service) -> None:
    client = service.client()
    made = await client.responses.create(model="model", input="Hello")
    await client.responses.delete(made.id)
    for ask in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(made.id)


async def test_a_running_response_is_cancelled_to_be_deleted(service: Service) -> None:
    service.stalled = True
    client = service.client()
    made = await client.responses.create(model="model", input="Hello", background=True)
    await service.until(lambda: service.model.running > 0)
    await client.responses.delete(made.id)
    assert await service.jobs() == []


async def test_nothing_is_kept_of_a_response_that_is_not_to_be_stored(service: Service) -> None:
    client = service.client()
    made = await client.responses.create(model="model", input="Hello", store=False)
    assert made.output_text == GREETING

    async def gone() -> bool:
        return await service.jobs() == []

    await service.until(gone)


async def test_unsupported_fields_are_refused_with_their_name(service: Service) -> None:
    client = service.client()
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.responses.create(model="model", input="Hello", previous_response_id="resp_1")
    assert refusal.value.param == "previous_response_id"
    asked: Any = input_about_file(await service.upload())
    shape: Any = {"format": {"type": "json_object"}}
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.responses.create(model="auto", input=asked, text=shape)
    assert refusal.value.param == "text.format"


async def test_a_strangers_files_and_responses_do_not_exist(service: Service) -> None:
    anne, ben = [(await service.rig.make_key(owner=name))["authorization"][7:] for name in ("anne", "ben")]
    file_id = await service.upload(api_key=anne)
    asked: Any = input_about_file(file_id)
    made = await service.client(api_key=anne).responses.create(model="auto", background=True, input=asked)
    stranger = service.client(api_key=ben)
    for ask in (stranger.responses.retrieve, stranger.responses.cancel, stranger.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(made.id)
    with pytest.raises(openai.NotFoundError):
        await stranger.responses.retrieve(made.id, stream=True)
    with pytest.raises(openai.NotFoundError):
        await stranger.responses.create(model="auto", input=asked)
    with pytest.raises(openai.NotFoundError):
        await stranger.chat.completions.create(model="auto", messages=about_file(file_id))
    with pytest.raises(openai.AuthenticationError):
        await service.client(api_key="lf_wrong").responses.retrieve(made.id)


async def test_a_key_for_one_model_sees_no_other(service: Service) -> None:
    secret = (await service.rig.make_key(owner="anne", models=("mapreduce",)))["authorization"][7:]
    client = service.client(api_key=secret)
    assert [model.id async for model in await client.models.list()] == ["mapreduce"]
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="model", input="Hello")
