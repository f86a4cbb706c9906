"""A job that was accepted is run once, to an end that says what happened."""

from __future__ import annotations

import asyncio
import json

import pytest

from pipeline.errors import InternalError, ReplicaUnavailable
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, ScriptedModel
from serving.jobs.job import JobState, Lane
from serving.jobs.runner import JobRunner
from serving.jobs.store import LeaseWatch
from serving.logging import JsonLines
from tests.api.conftest import Start
from tests.api.rig import OWNER, QUICK, Rig, reader, story, until


async def test_a_job_ends_with_an_answer_its_evidence_and_a_history_without_gaps(rig: Rig, start: Start) -> None:
    text = story()
    job = await rig.submit(text)
    start(rig.runner(ScriptedModel(reader())))
    done = await rig.ended(job)
    assert done.state is JobState.COMPLETED
    assert done.result is not None
    assert done.result["answer"] == "Ada Quill"
    [evidence, *_] = done.result["evidence"]
    assert text[evidence["start"] : evidence["end"]] == evidence["quote"]
    assert (done.result["strategy"], done.result["model"]) == ("mapreduce", "model")
    assert done.plan is not None
    assert done.plan["chunks"] == done.result["coverage"]["chunks"]
    events = await rig.store.events(job.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.kind for event in events]
    assert kinds[:2] == ["job.queued", "job.started"]
    assert kinds[-1] == "job.completed"
    assert {"plan", "split", "stage.started", "call.finished", "chunk.mapped"} <= set(kinds)


async def test_usage_is_what_the_calls_took_and_counts_into_the_totals(rig: Rig, start: Start) -> None:
    model = ScriptedModel(reader())
    start(rig.runner(model))
    done = await rig.ended(await rig.submit(story()))
    assert done.usage is not None
    made = sum(call.stage is Stage.MAP for call in model.calls)
    assert done.usage["map"]["calls"] == made
    assert done.usage["map"]["prompt_tokens"] == sum(
        len(call.prompt.token_ids) for call in model.calls if call.stage is Stage.MAP
    )
    totals = await rig.store.totals()
    assert totals["longfold_model_calls_total", (("outcome", "ok"), ("stage", "map"))] == made
    assert totals["longfold_job_duration_seconds_count", ()] == 1
    assert totals["longfold_job_duration_seconds_bucket", (("le", "+Inf"),)] == 1
    assert totals["longfold_chunks_total", (("outcome", "ok"),)] == done.result["coverage"]["chunks"]  # type: ignore[index]


async def test_the_second_question_of_an_owner_takes_from_the_journal_and_a_strangers_does_not(
    rig: Rig, start: Start
) -> None:
    model = ScriptedModel(reader())
    start(rig.runner(model))
    await rig.ended(await rig.submit(story()))
    once = len(model.calls)
    again = await rig.ended(await rig.submit(story()))
    assert len(model.calls) == once
    assert again.usage is not None
    assert again.usage["map"]["calls"] == 0
    assert again.usage["map"]["journal_calls"] > 0


async def test_messages_go_to_the_model_as_they_are(rig: Rig, start: Start) -> None:
    model = ScriptedModel(lambda call, times: Reply(text="Hello back"))
    start(rig.runner(model))
    job = await rig.submit(
        kind="chat",
        question="",
        messages=({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello<|im_end|>"}),
        sampling={"max_output_tokens": 7, "temperature": 0.5},
        lane=Lane.SHORT,
    )
    done = await rig.ended(job)
    assert done.state is JobState.COMPLETED
    assert done.result is not None
    assert (done.result["text"], done.result["finish_reason"]) == ("Hello back", "stop")
    [call] = model.calls
    assert (call.sampling.max_output_tokens, call.sampling.temperature) == (7, 0.5)
    text = rig.model.tokenizer.decode(call.prompt.token_ids)
    assert text.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|><|im_end|>")
    assert done.result["usage"]["prompt_tokens"] == len(call.prompt.token_ids)


async def test_a_chat_that_does_not_fit_fails_with_how_much_too_long_it_is(rig: Rig, start: Start) -> None:
    start(rig.runner(ScriptedModel(reader())))
    messages = ({"role": "user", "content": "x" * 10_000},)
    done = await rig.ended(await rig.submit(kind="chat", messages=messages, lane=Lane.SHORT))
    assert done.state is JobState.FAILED
    assert done.error is not None
    assert done.error["type"] == "PromptTooLong"
    assert not done.error["retryable"]


async def test_a_request_that_cannot_be_served_fails_under_its_own_name(rig: Rig, start: Start) -> None:
    start(rig.runner(ScriptedModel(reader())))
    for fields, error in (({"strategy": "guess"}, "UnknownName"), ({"options": {"speed": 9}}, "CallerError")):
        done = await rig.ended(await rig.submit(story(3), **fields))
        assert done.error is not None
        assert done.error["type"] == error


def poisoned(call: Call, times: int) -> Reply:
    """Chunk 2 cannot be read."""
    if call.chunk_index == 2:
        return Reply(error=InternalError("poison"))
    return reader()(call, times)


async def test_a_failed_chunk_costs_coverage_and_a_warning_or_under_the_strict_policy_the_job(
    rig: Rig, start: Start
) -> None:
    start(rig.runner(ScriptedModel(poisoned)))
    lenient = await rig.ended(await rig.submit(story()))
    assert lenient.state is JobState.COMPLETED
    assert lenient.result is not None
    [failed] = lenient.result["coverage"]["failed_chunks"]
    assert (failed["index"], failed["error"]) == (2, "InternalError")
    assert lenient.result["warnings"]
    strict = await rig.ended(await rig.submit(story(), on_chunk_error="strict"))
    assert strict.state is JobState.FAILED
    assert strict.error is not None
    assert "1 of" in strict.error["message"]


async def test_a_job_of_which_nothing_could_be_read_is_no_success(rig: Rig, start: Start) -> None:
    start(rig.runner(ScriptedModel(lambda call, times: Reply(error=InternalError("poison")))))
    done = await rig.ended(await rig.submit(story()))
    assert done.state is JobState.FAILED
    assert done.error is not None
    assert done.error["type"] == "InternalError"


async def test_a_fault_of_ours_fails_the_job_and_tells_no_text(
    rig: Rig, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> object:
        raise ValueError("secret text of the document")

    monkeypatch.setattr("pipeline.mapreduce.strategy.score_words", broken)
    start(rig.runner(ScriptedModel(reader())))
    done = await rig.ended(await rig.submit(story()))
    assert done.error is not None
    assert done.error["type"] == "InternalError"
    assert "secret" not in done.error["message"]
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    [fault] = [line for line in lines if line["event"] == "job.fault"]
    assert (fault["job_id"], fault["error"], fault["level"]) == (done.id, "ValueError", "error")
    assert "secret" not in json.dumps(lines)


async def test_cancelling_ends_the_models_calls_at_once(rig: Rig, start: Start) -> None:
    model = ScriptedModel(lambda call, times: Reply(stalls=True))
    start(rig.runner(model))
    job = await rig.submit(story())
    await until(lambda: model.running > 0)
    await rig.store.request_cancel(job.id, OWNER)
    done = await rig.ended(job, within_s=15.0)
    assert done.state is JobState.CANCELLED
    await until(lambda: model.running == 0, within_s=15.0)


async def test_a_cancelled_job_pays_for_what_it_used(rig: Rig, start: Start) -> None:
    script = reader()
    model = ScriptedModel(lambda call, times: script(call, times) if call.stage is Stage.MAP else Reply(stalls=True))
    start(rig.runner(model))
    job = await rig.submit(story())
    await until(lambda: any(call.stage is Stage.SUPPORT for call in model.calls))
    await rig.store.request_cancel(job.id, OWNER)
    done = await rig.ended(job)
    assert done.usage is not None
    assert done.usage["map"]["prompt_tokens"] > 0


async def test_a_short_job_does_not_wait_for_the_long_ones(rig: Rig, start: Start) -> None:
    script = reader()
    model = ScriptedModel(lambda call, times: script(call, times) if call.stage is Stage.DIRECT else Reply(stalls=True))
    start(rig.runner(model, places={Lane.LONG: 1, Lane.SHORT: 1}))
    long = [await rig.submit(story()) for _ in range(3)]
    await rig.reaches(long[0], lambda job: job.state is JobState.RUNNING)
    chat = await rig.submit(kind="chat", messages=({"role": "user", "content": "Hi"},), lane=Lane.SHORT)
    assert (await rig.ended(chat, within_s=30.0)).state is JobState.COMPLETED
    states = [(await rig.find(job)).state for job in long]
    assert states == [JobState.RUNNING, JobState.QUEUED, JobState.QUEUED]


async def test_stopping_gives_jobs_back_and_the_next_runner_pays_for_nothing_twice(rig: Rig, start: Start) -> None:
    script = reader()
    first = ScriptedModel(lambda call, times: script(call, times) if call.stage is Stage.MAP else Reply(stalls=True))
    job = await rig.submit(story())
    running = start(rig.runner(first))
    await until(lambda: any(call.stage is Stage.SUPPORT for call in first.calls) and first.running == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    given_back = await rig.find(job)
    assert (given_back.state, given_back.attempt) == (JobState.QUEUED, 0)
    assert first.running == 0
    assert await rig.store.runners() == []
    second = ScriptedModel(script)
    start(rig.runner(second))
    done = await rig.ended(job)
    assert done.state is JobState.COMPLETED
    mapped = {call.chunk_index for call in first.calls if call.stage is Stage.MAP}
    assert not any(call.stage is Stage.MAP for call in second.calls)
    assert done.usage is not None
    assert done.usage["map"]["calls"] == len(mapped)


async def test_a_job_that_ended_its_runners_too_often_is_given_up(rig: Rig, start: Start) -> None:
    job = await rig.submit(story())
    for _ in range(4):
        await _claimed_by_one_who_dies(rig)
    model = ScriptedModel(reader())
    start(rig.runner(model))
    done = await rig.ended(job)
    assert done.state is JobState.FAILED
    assert done.error is not None
    assert "given up" in done.error["message"]
    assert model.calls == []
    again = await rig.store.retry(job.id, OWNER)
    assert again is not None
    assert (await rig.ended(job)).state is JobState.COMPLETED


async def _claimed_by_one_who_dies(rig: Rig) -> None:
    watch = LeaseWatch(lease_s=0.05)

    async def claims() -> bool:
        return await rig.store.claim("dies", Lane.LONG, watch) is not None

    await until(claims)


async def test_a_model_that_is_away_sends_the_job_back_to_the_queue(
    rig: Rig, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.jobs.health_probe.SILENCE_S", 0.0)
    away = True
    script = reader()

    def sometimes(call: Call, times: int) -> Reply:
        return Reply(error=ReplicaUnavailable("gone")) if away else script(call, times)

    runner = rig.runner(ScriptedModel(sometimes))
    monkeypatch.setattr(runner._health, "_idle_s", 0.2)
    start(runner)
    job = await rig.submit(story())
    await rig.reaches(job, lambda found: found.state is JobState.QUEUED and found.attempt == 1)
    await asyncio.sleep(0.5)
    waiting = await rig.find(job)
    assert (waiting.state, waiting.attempt) == (JobState.QUEUED, 1), "it is not tried while the model does not answer"
    [status] = await rig.store.runners()
    assert not status.ready
    assert status.message
    away = False
    assert (await rig.ended(job)).state is JobState.COMPLETED


async def test_a_runner_tells_how_it_is(rig: Rig, start: Start) -> None:
    stats = [{"name": "r1", "stats": {"pid": 1}}]
    start(rig.runner(ScriptedModel(reader()), replica_stats=lambda: stats))

    async def reported() -> bool:
        return any(status.replicas for status in await rig.store.runners())

    await until(reported)
    [status] = await rig.store.runners()
    assert (status.ready, status.model, status.context_tokens) == (True, "model", 8192)
    assert list(status.replicas) == stats
    before = status.beat

    async def beats() -> bool:
        return (await rig.store.runners())[0].beat > before

    await until(beats)


async def test_an_idle_runner_asks_the_model_for_a_token(
    rig: Rig, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(reader())
    runner = JobRunner(rig.store, rig.files, rig.session(model), pace=QUICK)
    monkeypatch.setattr(runner._health, "_idle_s", 0.1)
    start(runner)
    await until(lambda: bool(model.calls))
    assert (model.calls[0].stage, model.calls[0].sampling.max_output_tokens) == (Stage.DIRECT, 1)
