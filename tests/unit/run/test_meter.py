"""Limits are looked at when a call can be sent, and never keep an answer back."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.llm.complete import at_once
from pipeline.llm.model import LIMIT_REACHED, CallFailed, Completion, Stage
from pipeline.llm.scripted import Reply, ScriptedModel
from pipeline.run.events import CallEnded, Event
from pipeline.run.meter import Meter
from pipeline.run.request import Limits
from tests.factories import make_call


def metered(limits: Limits, *, delay_s: float = 0.0, max_calls: int = 2) -> tuple[Meter, ScriptedModel, list[Event]]:
    model, events = ScriptedModel(lambda *_: Reply(text="ok", delay_s=delay_s)), list[Event]()
    return Meter(InlineDispatcher(model, max_calls=max_calls), limits, events.append), model, events


async def test_the_first_calls_are_made_and_the_rest_is_kept_back() -> None:
    meter, model, events = metered(Limits(calls=3))
    outcomes = await at_once(meter.complete(make_call(f"{n}")) for n in range(8))
    assert [isinstance(one, Completion) for one in outcomes] == [True] * 3 + [False] * 5
    assert {one.error for one in outcomes if isinstance(one, CallFailed)} == {LIMIT_REACHED}
    assert len(model.calls) == 3
    assert meter.stopped_by == "calls"
    assert meter.usage[Stage.MAP].calls == 3
    assert sum(isinstance(event, CallEnded) for event in events) == 8


async def test_a_time_limit_counts_when_a_call_can_be_sent_not_when_it_is_asked_for() -> None:
    meter, model, _ = metered(Limits(wall_time_s=0.05), delay_s=0.1)
    outcomes = await at_once(meter.complete(make_call(f"{n}")) for n in range(8))
    assert [isinstance(one, Completion) for one in outcomes] == [True] * 2 + [False] * 6
    assert len(model.calls) == 2, "those under way are let finish"
    assert meter.stopped_by == "wall time"


@pytest.mark.parametrize("stage", [Stage.SUPPORT, Stage.COLLAPSE, Stage.REDUCE, Stage.DIRECT])
async def test_what_concludes_is_always_allowed(stage: Stage) -> None:
    meter, _, _ = metered(Limits(calls=0))
    assert isinstance(await meter.complete(make_call()), CallFailed)
    assert isinstance(await meter.complete(make_call(stage=stage)), Completion)


async def test_a_finding_is_mapped_before_the_gate_goes_on() -> None:
    meter, model, _ = metered(Limits(), max_calls=1)
    gate = asyncio.create_task(at_once(meter.complete(make_call(f"{n}", stage=Stage.GATE)) for n in range(5)))
    while not model.calls:
        await asyncio.sleep(0)
    await meter.complete(make_call("map"))
    assert [call.stage for call in model.calls[:2]] == [Stage.GATE, Stage.MAP]
    await gate
