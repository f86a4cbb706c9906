"""Chat completions through OpenAI's own client: documents are read, conversations passed through, errors told."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import openai
import pytest

from pipeline.errors import ReplicaUnavailable
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply
from pipeline.strategies import STRATEGIES
from serving.api import clients
from serving.api.openai import chat
from serving.session import SpeedBook
from tests.api.openai_rig import BOOK, FACT, GREETING, QUESTION, Service, about_file, service

__all__ = ["service"]

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


async def test_models_are_the_strategies_auto_and_the_served_model(service: Service) -> None:
    client = service.client()
    names = [model.id async for model in await client.models.list()]
    assert (names[0], names[-1]) == ("auto", "model")
    assert set(names) == {"auto", *STRATEGIES, "model"}
    assert len(names) == len(set(names))
    found: Any = await client.models.retrieve("mapreduce:model")
    assert "reduce" in found.longfold["steps"], "what a run may be paused before"
    assert "use_gate" in found.longfold["options"], "what it obeys"
    assert (found.id, found.owned_by, found.object) == ("mapreduce:model", "longfold", "model")
    with pytest.raises(openai.NotFoundError, match="mapreduce"):
        await client.models.retrieve("gpt-4")


async def test_a_file_is_read_and_the_answer_stands_on_quotes_of_it(service: Service) -> None:
    file_id = await service.upload()
    client = service.sync()
    answer = await asyncio.to_thread(client.chat.completions.create, model="mapreduce", messages=about_file(file_id))
    assert answer.choices[0].message.content == "Anselm"
    assert answer.choices[0].finish_reason == "stop"
    told: Any = answer.model_extra
    [quote] = told["longfold"]["evidence"]
    assert BOOK[quote["start"] : quote["end"]] == quote["quote"] == FACT
    assert (quote["file_id"], quote["match"]) == (file_id, "pointer")
    assert told["longfold"]["plan"]["found_by"] == "files"
    assert told["longfold"]["plan"]["question"] == QUESTION
    assert told["longfold"]["coverage"]["failed"] == 0


async def test_usage_counts_document_and_question_once_and_the_work_apart(service: Service) -> None:
    answer = await service.client().chat.completions.create(
        model="mapreduce", messages=about_file(await service.upload())
    )
    told: Any = answer.model_extra
    assert answer.usage is not None
    plan = told["longfold"]["plan"]
    question_tokens = service.rig.gateway.model.tokenizer.count(QUESTION)
    assert answer.usage.prompt_tokens == plan["document_tokens"] + question_tokens
    work = sum(stage["prompt_tokens"] for stage in told["longfold"]["usage_by_stage"].values())
    assert work > answer.usage.prompt_tokens


async def test_a_document_within_the_messages_is_found_by_its_length(service: Service) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": BOOK}, {"type": "text", "text": QUESTION}]},
    ]
    answer = await service.client().chat.completions.create(model="auto", messages=messages)
    plan: Any = (answer.model_extra or {})["longfold"]["plan"]
    assert answer.choices[0].message.content == "Anselm"
    assert (plan["found_by"], plan["question"], plan["instructions"]) == ("length", QUESTION, "Be brief.")


CITED = f"Cite sources as [id].\n\n<context>\n<source id=1>{BOOK}</source>\n</context>\n\n{QUESTION}"


@pytest.mark.parametrize(
    ("messages", "found_by"),
    [
        ([("user", f"{BOOK}\n\n{QUESTION}")], "one text"),
        ([("user", f"{QUESTION}\n\n{BOOK}")], "one text"),
        ([("user", f"Use what follows.\n\n{BOOK}\n\nQuestion: {QUESTION}\nHelpful Answer:")], "one text"),
        ([("system", "You are helpful."), ("user", CITED)], "one text"),
        ([("system", QUESTION), ("user", BOOK)], "system text"),
        ([("system", f"Answer from this:\n\n{BOOK}"), ("user", QUESTION)], "length"),
        ([("user", BOOK), ("assistant", "A long story."), ("user", QUESTION)], "length"),
    ],
    ids=["pasted", "asked first", "stuffed prompt", "RAG template", "llm -s", "RAG in system", "follow-up"],
)
async def test_the_commonest_shapes_of_a_long_prompt_are_read(
    service: Service, messages: list[tuple[str, str]], found_by: str
) -> None:
    asked: list[Any] = [{"role": role, "content": content} for role, content in messages]
    answer = await service.client().chat.completions.create(model="auto", messages=asked)
    plan: Any = (answer.model_extra or {})["longfold"]["plan"]
    assert answer.choices[0].message.content == "Anselm"
    assert (plan["found_by"], plan["question"]) == (found_by, QUESTION)


async def test_a_long_text_that_asks_nothing_is_ambiguous(service: Service) -> None:
    messages: list[Any] = [{"role": "user", "content": BOOK}]
    with pytest.raises(openai.BadRequestError, match="file part") as refusal:
        await service.client().chat.completions.create(model="auto", messages=messages)
    assert (refusal.value.code, refusal.value.param) == ("ambiguous_document", "messages")
    assert refusal.value.response.headers["x-should-retry"] == "false"
    turns: list[Any] = [{"role": role, "content": "word " * 100} for role in ("user", "assistant") * 50]
    with pytest.raises(openai.BadRequestError, match="context") as refusal:
        await service.client().chat.completions.create(model="auto", messages=[*turns, *HELLO])
    assert refusal.value.code == "context_length_exceeded"
    assert await service.jobs() == []


@pytest.mark.parametrize("scopes", [{"infer"}, {"infer", "files"}])
async def test_a_file_may_come_within_the_request_and_is_kept_for_it_alone(service: Service, scopes: set[str]) -> None:
    data = "data:text/plain;base64," + base64.b64encode(BOOK.encode()).decode()
    parts = [{"type": "file", "file": {"file_data": data, "filename": "a.txt"}}, {"type": "text", "text": QUESTION}]
    messages: list[Any] = [{"role": "user", "content": parts}]
    headers = await service.rig.make_key(scopes=scopes, owner="team")
    key = headers["authorization"].removeprefix("Bearer ")
    answer = await service.client(api_key=key).chat.completions.create(model="auto", messages=messages)
    told: Any = answer.model_extra
    assert answer.choices[0].message.content == "Anselm"
    [document] = told["longfold"]["plan"]["documents"]
    assert (document["name"], document["file_id"], document["tokens"] > 0) == ("a.txt", None, True)
    colleague = await service.rig.make_key(scopes={"files"}, owner="team")
    assert (await service.rig.client.get("/v1/files", headers=colleague)).json()["data"] == []


async def test_what_the_document_does_not_say_is_a_plain_sentence_and_a_flag(service: Service) -> None:
    service.finds = False
    answer = await service.client().chat.completions.create(
        model="mapreduce", messages=about_file(await service.upload())
    )
    told: Any = answer.model_extra
    assert answer.choices[0].message.content == "The document does not say."
    assert told["longfold"]["found"] is False


@pytest.mark.parametrize("model", ["model", "auto", "mapreduce"])
async def test_a_short_conversation_is_passed_to_the_model(service: Service, model: str) -> None:
    answer = await service.client().chat.completions.create(model=model, messages=HELLO, max_tokens=50)
    assert answer.choices[0].message.content == GREETING
    [call] = service.model.calls
    assert call.sampling.max_output_tokens == 50
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(call.prompt.token_ids)
    told: Any = answer.model_extra
    assert told["longfold"]["plan"]["strategy"] == "pass_through"


async def test_how_a_conversation_is_to_be_drawn_reaches_the_model(service: Service) -> None:
    penalties = {"presence_penalty": 0.5, "frequency_penalty": -0.5}
    answer = await service.client().chat.completions.create(
        model="auto",
        messages=HELLO,
        top_p=0.9,
        extra_body={"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1},
        **penalties,  # type: ignore[arg-type]
    )
    assert answer.choices[0].message.content == GREETING
    sampling = service.model.calls[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 0.9, 40, 0.05)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0.5, -0.5, 1.1)


async def test_an_answer_is_allowed_no_more_than_the_context_holds(service: Service) -> None:
    answer = await service.client().chat.completions.create(model="auto", messages=HELLO, max_tokens=100_000)
    assert answer.choices[0].message.content == GREETING
    [call] = service.model.calls
    assert call.cost_tokens() == service.rig.gateway.model.profile.context_tokens


async def test_a_json_shape_reaches_the_model_and_is_refused_of_a_strategy(service: Service) -> None:
    schema = {"type": "object", "properties": {"greeting": {"type": "string"}}}
    shape: Any = {"type": "json_schema", "json_schema": {"name": "greeting", "schema": schema}}
    client = service.client()
    answer = await client.chat.completions.create(model="model", messages=HELLO, response_format=shape)
    assert json.loads(answer.choices[0].message.content or "") == {"greeting": "hello"}
    assert json.loads(service.model.calls[0].sampling.json_schema or "") == schema
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(
            model="mapreduce", messages=about_file(await service.upload()), response_format=shape
        )
    assert refusal.value.param == "response_format"


async def test_the_model_itself_reads_no_files_and_takes_no_more_than_its_context(service: Service) -> None:
    client = service.client()
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(model="model", messages=about_file(await service.upload()))
    assert refusal.value.param == "messages[0].content[0]"
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(model="model", messages=[{"role": "user", "content": BOOK}])
    assert refusal.value.code == "context_length_exceeded"


async def test_what_a_strategy_cannot_obey_is_told_as_ignored(service: Service) -> None:
    answer = await service.client().chat.completions.create(
        model="mapreduce",
        messages=about_file(await service.upload()),
        temperature=0.9,
        top_p=0.5,
        user="u",
        max_tokens=7,
    )
    told: Any = answer.model_extra
    assert sorted(told["longfold"]["ignored"]) == ["max_tokens", "temperature", "top_p", "user"]
    answer = await service.client().chat.completions.create(
        model="mapreduce", messages=about_file(await service.upload()), temperature=0, top_p=1, frequency_penalty=0
    )
    told = answer.model_extra
    assert "ignored" not in told["longfold"], "they ask for what is done"
    assert all(call.sampling.temperature == 0 for call in service.model.calls)


async def test_a_file_that_is_not_there_is_not_found(service: Service) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        await service.client().chat.completions.create(
            model="auto", messages=about_file("file-01K9ZJ3W5T8Q4V6X2B7N9M1C0D")
        )
    assert (refusal.value.code, refusal.value.param) == ("file_not_found", "messages[0].content[0]")


async def test_choices_make_a_multiple_choice_question_and_one_is_none(service: Service) -> None:
    file_id = await service.upload()
    with pytest.raises(openai.BadRequestError) as refusal:
        await service.client().chat.completions.create(
            model="auto", messages=about_file(file_id), extra_body={"longfold": {"choices": ["only"]}}
        )
    assert refusal.value.param == "longfold.choices"


async def test_a_stream_begins_at_once_and_ends_with_what_the_answer_stands_on(service: Service) -> None:
    file_id = await service.upload()
    stream = await service.client().chat.completions.create(
        model="mapreduce",
        messages=about_file(file_id),  # type: ignore[arg-type]
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    first, *middle, last, usage = chunks
    assert first.choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in middle) == "Anselm"
    assert last.choices[0].finish_reason == "stop"
    told: Any = last.model_extra
    assert told["longfold"]["evidence"][0]["quote"] == FACT
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_conversations_message_comes_while_it_is_written(service: Service) -> None:
    service.slow_s = 1.0
    stream = await service.client().chat.completions.create(model="model", messages=HELLO, stream=True)
    pieces, states = [], []
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            pieces.append(chunk.choices[0].delta.content)
            states.append((await service.jobs())[0]["state"])
    assert "".join(pieces) == GREETING
    assert states == ["running", "completed"]


async def test_a_message_that_a_lost_replica_began_is_not_mixed_with_another(service: Service) -> None:
    def reply(call: Call, times: int) -> Reply:
        lost = ReplicaUnavailable("it was killed") if times == 0 else None
        return Reply(text=("Hello there.", "Good morning.")[times], delay_s=1.0, error=lost)

    service.model.script = reply
    stream = await service.client().chat.completions.create(model="model", messages=HELLO, stream=True)
    with pytest.raises(openai.APIError, match="Ask again") as failure:
        async for _ in stream:
            pass
    assert failure.value.code == "written_anew"
    again = await service.client().chat.completions.create(model="model", messages=HELLO)
    assert again.choices[0].message.content == "Good morning."


async def test_progress_is_told_as_reasoning_under_both_names_if_asked_for(service: Service) -> None:
    file_id = await service.upload()
    stream = await service.client().chat.completions.create(
        model="mapreduce",
        messages=about_file(file_id),  # type: ignore[arg-type]
        stream=True,
        extra_body={"longfold": {"progress": "reasoning"}},
    )
    deltas = [chunk.choices[0].delta.model_dump() async for chunk in stream]
    told = [delta["reasoning"] for delta in deltas if "reasoning" in delta]
    assert told == [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert any(line.startswith("map ") for line in told)
    assert any(line.startswith("So far: Anselm (") for line in told)


async def test_a_silent_stream_is_kept_alive_with_its_progress(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "KEEP_ALIVE_S", 0.05)
    service.slow_s = 1.0
    body = {"model": "mapreduce", "messages": about_file(await service.upload()), "stream": True}
    async with service.rig.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = [line async for line in answer.aiter_lines() if line]
    assert any(line.startswith(": ping map ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert not any("reasoning" in line for line in lines)


async def test_an_error_in_the_middle_of_a_stream_is_raised_by_the_client(service: Service) -> None:
    service.broken = ReplicaUnavailable("no replica answers")
    file_id = await service.upload()
    stream = await service.client().chat.completions.create(
        model="mapreduce",
        messages=about_file(file_id),  # type: ignore[arg-type]
        stream=True,
        extra_body={"longfold": {"on_chunk_error": "strict"}},
    )
    with pytest.raises(openai.APIError) as failure:
        async for _ in stream:
            pass
    assert failure.value.code == "replica_unavailable"


async def test_a_failed_job_is_an_error_that_is_not_retried(service: Service) -> None:
    service.broken = ReplicaUnavailable("no replica answers")
    client = service.client(max_retries=2)
    with pytest.raises(openai.InternalServerError) as failure:
        await client.chat.completions.create(model="model", messages=HELLO)
    assert failure.value.response.headers["x-should-retry"] == "false"
    assert len(await service.jobs()) == 1


async def test_a_long_run_is_to_be_asked_for_in_the_background(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeedBook, "find", lambda self, fingerprint: 1.0)
    file_id = await service.upload()
    client = service.client(max_retries=2)
    with pytest.raises(openai.BadRequestError, match="background=true") as refusal:
        await client.chat.completions.create(model="mapreduce", messages=about_file(file_id))
    assert (refusal.value.code, refusal.value.param) == ("use_background", "stream")
    assert refusal.value.response.headers["x-should-retry"] == "false"
    assert await service.jobs() == []
    accepted = await client.responses.create(model="mapreduce", input="Hello", background=True)
    assert accepted.status == "queued"


async def test_a_client_that_goes_away_ends_the_run_in_the_engine_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "GRACE_S", 0.3)
    service.stalled = True
    body = {"model": "mapreduce", "messages": about_file(await service.upload()), "stream": True}
    async with service.rig.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert (await anext(answer.aiter_lines())).startswith("data:")
        await service.until(lambda: service.model.running > 0)
    await service.until_state("cancelled")
    await service.until(lambda: service.model.running == 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_another_client_of_the_same_run_keeps_it_alive(
    service: Service, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(clients, "GRACE_S", 0.2)
    service.slow_s = 0.15
    body = {"model": "mapreduce", "messages": about_file(await service.upload()), "stream": stream}
    headers = {"idempotency-key": "one"}
    leaving = asyncio.create_task(service.rig.client.post("/v1/chat/completions", json=body, headers=headers))
    await service.until(lambda: service.model.running > 0)
    staying = asyncio.create_task(service.rig.client.post("/v1/chat/completions", json=body, headers=headers))
    await asyncio.sleep(0.1)
    leaving.cancel()
    assert "Anselm" in (await staying).text
    assert len(await service.jobs()) == 1
