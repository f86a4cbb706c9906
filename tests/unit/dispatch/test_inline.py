"""Retries and bounds, without a cluster and without waiting."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.retry import RetryPolicy
from pipeline.errors import CallTimedOut, ContextOverflow, LongfoldError, MalformedOutput, ReplicaUnavailable
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, Completion, EncodedPrompt, Sampling, Stage
from pipeline.llm.scripted import Reply, ScriptedModel


def make_call(number: int, *, stage: Stage = Stage.MAP) -> Call:
    prompt = EncodedPrompt(token_ids=array("I", [number]), shared_prefix_tokens=0)
    return Call(prompt=prompt, sampling=Sampling(max_output_tokens=9), stage=stage)


def number_of(call: Call) -> int:
    return call.prompt.token_ids[0]


class Clock:
    """Time that passes only when someone sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits_s: list[float] = []

    async def sleep(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.now_s += wait_s
        await asyncio.sleep(0)

    def __call__(self) -> float:
        return self.now_s


def make_dispatcher(
    reply: Callable[[Call, int], Reply], clock: Clock | None = None, *, max_calls: int = 8, **retry: float
) -> tuple[InlineDispatcher, ScriptedModel]:
    clock = clock or Clock()
    model = ScriptedModel(reply)
    policy = RetryPolicy(**retry)  # type: ignore[arg-type]
    return InlineDispatcher(model, max_calls=max_calls, retry=policy, sleep=clock.sleep, clock=clock), model


async def read(dispatcher: InlineDispatcher, *numbers: int) -> list[str]:
    outcomes = await at_once(dispatcher.complete(make_call(number)) for number in numbers)
    return [one.text if isinstance(one, Completion) else one.error for one in outcomes]


async def test_every_call_gets_its_own_outcome_when_later_ones_end_first() -> None:
    dispatcher, _ = make_dispatcher(
        lambda call, _: Reply(text=str(number_of(call)), delay_s=0.002 / (1 + number_of(call)))
    )
    assert await read(dispatcher, *range(20)) == [str(n) for n in range(20)]


async def test_no_more_calls_run_at_once_than_there_is_room() -> None:
    dispatcher, model = make_dispatcher(lambda *_: Reply(delay_s=0.001), max_calls=3)
    await asyncio.gather(*(read(dispatcher, *range(10)) for _ in range(2)))
    assert model.max_running == 3
    assert dispatcher.window == 3


async def test_an_urgent_call_enters_before_bulk_calls_that_wait() -> None:
    dispatcher, model = make_dispatcher(lambda *_: Reply(delay_s=0.001), max_calls=1)
    bulk = asyncio.create_task(read(dispatcher, *range(5)))
    await asyncio.sleep(0)
    await dispatcher.complete(make_call(99, stage=Stage.REDUCE))
    assert 99 in [number_of(call) for call in model.calls[:3]]
    await bulk


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(ReplicaUnavailable, 8), (CallTimedOut, 3), (MalformedOutput, 2), (ContextOverflow, 1)],
)
async def test_a_call_is_tried_again_as_often_as_its_error_deserves(error: type[LongfoldError], attempts: int) -> None:
    dispatcher, model = make_dispatcher(lambda *_: Reply(error=error("no")))
    outcome = await dispatcher.complete(make_call(1))
    assert outcome == CallFailed(error=error.__name__, message="no", attempts=attempts)
    assert len(model.calls) == attempts


async def test_a_call_that_fails_once_succeeds_the_second_time() -> None:
    dispatcher, _ = make_dispatcher(
        lambda call, times: Reply(text="ok") if times else Reply(error=ReplicaUnavailable("down"))
    )
    assert await read(dispatcher, 1) == ["ok"]


async def test_waits_double_with_jitter_up_to_the_longest() -> None:
    clock = Clock()
    dispatcher, _ = make_dispatcher(lambda *_: Reply(error=ReplicaUnavailable("down")), clock, longest_wait_s=4.0)
    await read(dispatcher, 1)
    assert len(clock.waits_s) == 7
    for wait_s, full_s in zip(clock.waits_s, [1, 2, 4, 4, 4, 4, 4], strict=True):
        assert full_s / 2 <= wait_s <= full_s


async def test_an_outage_longer_than_its_deadline_ends_the_call() -> None:
    dispatcher, model = make_dispatcher(lambda *_: Reply(error=ReplicaUnavailable("down")), outage_s=2.0)
    assert await read(dispatcher, 1) == ["ReplicaUnavailable"]
    assert 3 <= len(model.calls) < 8


async def test_the_default_waits_outlast_a_replica_restart_on_a_cpu() -> None:
    policy = RetryPolicy()
    waits_s = [
        policy.wait_s(CallFailed(error="ReplicaUnavailable", message="", attempts=n), failing_s=0.0)
        for n in range(1, policy.replica_attempts)
    ]
    assert sum(wait_s or 0.0 for wait_s in waits_s) > 30.0, "and between the waits, Serve holds calls until one is back"


async def test_a_model_that_raises_what_it_must_not_is_recorded_not_hidden() -> None:
    class Broken:
        async def complete(self, call: Call) -> Completion:
            raise ValueError("oops")

    outcome = await InlineDispatcher(Broken()).complete(make_call(1))
    assert isinstance(outcome, CallFailed)
    assert outcome.error == "InternalError"
    assert "ValueError: oops" in outcome.message


async def test_cancelling_the_reader_aborts_the_calls_and_frees_their_room() -> None:
    dispatcher, model = make_dispatcher(lambda call, _: Reply(stalls=number_of(call) > 0), max_calls=2)
    reader = asyncio.create_task(read(dispatcher, 1, 2, 3))
    while model.running < 2:
        await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert model.running == 0
    assert await read(dispatcher, 0) == [""]


@pytest.mark.parametrize("steps", range(8))
async def test_a_reader_cancelled_at_any_moment_leaves_all_room_free(steps: int) -> None:
    dispatcher, model = make_dispatcher(lambda call, _: Reply(stalls=number_of(call) > 0), max_calls=3)
    reader = asyncio.create_task(read(dispatcher, *range(1, 9)))
    for _ in range(steps):
        await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    async with asyncio.timeout(1):
        assert await read(dispatcher, 0, 0, 0, 0) == [""] * 4
    assert model.running == 0
