"""What is told before a run bounds what the run takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from pipeline.documents.document import Document
from pipeline.errors import EmptyDocument
from pipeline.llm.model import Usage
from pipeline.llm.scripted import ScriptedModel, seeded_script
from pipeline.run.request import Limits, Request
from serving.estimate import estimate
from serving.models.profile import load_profile
from serving.session import OpenModel, Session, SpeedBook
from tests.factories import fact_document
from tests.tiny_model import make_chat_model

REQUEST = Request(question="How still was the harbour?")
DOCUMENT = fact_document({}, paragraphs=60)


@pytest.fixture
def model(tmp_path: Path) -> OpenModel:
    return OpenModel(load_profile(make_chat_model(tmp_path / "model")))


async def test_the_real_calls_and_tokens_stay_within_the_estimate_and_near_it(model: OpenModel, tmp_path: Path) -> None:
    told = estimate(model, DOCUMENT, REQUEST, 1000.0)
    scripted = ScriptedModel(seeded_script())
    session = Session(
        model=model,
        dispatcher=InlineDispatcher(scripted),
        journal=Journal(tmp_path / "j.sqlite"),
        speeds=SpeedBook(tmp_path),
    )
    answer = await session.ask(DOCUMENT, REQUEST)
    used = sum(answer.usage.values(), Usage())
    assert used.calls == len(scripted.calls)
    assert told.plan.calls / 3 <= used.calls <= told.plan.calls
    assert told.plan.prompt_tokens / 3 <= used.prompt_tokens <= told.plan.prompt_tokens
    assert used.output_tokens <= told.plan.output_tokens
    assert told.seconds_low is not None
    assert told.seconds_high is not None
    assert told.seconds_low <= used.prompt_tokens / 1000.0 <= told.seconds_high


def test_without_a_measured_speed_no_time_is_told(model: OpenModel) -> None:
    told = estimate(model, DOCUMENT, REQUEST, None)
    assert (told.seconds_low, told.seconds_high) == (None, None)


def test_limits_shorten_the_time(model: OpenModel) -> None:
    limited = Request(question="How still?", limits=Limits(tokens=5000, wall_time_s=3.0))
    assert estimate(model, DOCUMENT, limited, 1000.0).seconds_high == 3.0
    assert estimate(model, DOCUMENT, limited, 10_000.0).seconds_high == 0.5


def test_what_cannot_be_asked_cannot_be_estimated(model: OpenModel) -> None:
    with pytest.raises(EmptyDocument):
        estimate(model, Document.from_text(" "), REQUEST, None)


async def test_a_speed_is_noted_only_by_a_run_that_had_the_machine_to_itself(model: OpenModel, tmp_path: Path) -> None:
    import asyncio

    speeds = SpeedBook(tmp_path)
    session = Session(
        model=model,
        dispatcher=InlineDispatcher(ScriptedModel(seeded_script(delay_s=0.01))),
        journal=Journal(tmp_path / "j.sqlite"),
        speeds=speeds,
    )
    both = (session.ask(DOCUMENT, REQUEST, owner=owner) for owner in ("one", "other"))
    await asyncio.gather(*both)
    assert speeds.find(model.profile.fingerprint) is None
    await session.ask(DOCUMENT, REQUEST)
    assert speeds.find(model.profile.fingerprint) is not None


async def test_owners_share_no_completion_and_runs_of_one_owner_do(model: OpenModel, tmp_path: Path) -> None:
    scripted = ScriptedModel(seeded_script())
    journal, speeds = Journal(tmp_path / "j.sqlite"), SpeedBook(tmp_path)
    session = Session(model=model, dispatcher=InlineDispatcher(scripted), journal=journal, speeds=speeds)
    await session.ask(DOCUMENT, REQUEST, owner="one", run_id="a")
    once = len(scripted.calls)
    shared = await session.ask(DOCUMENT, REQUEST, owner="one", run_id="b")
    assert len(scripted.calls) == once
    assert sum(shared.usage.values(), Usage()).calls == 0
    await session.ask(DOCUMENT, REQUEST, owner="other", run_id="c")
    assert len(scripted.calls) == 2 * once
