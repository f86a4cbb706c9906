"""No call is paid twice; a lost journal costs the resume, never the run."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher, RunHistory
from pipeline.errors import InternalError
from pipeline.llm.model import Call, CallFailed, Completion
from pipeline.llm.scripted import Reply, ScriptedModel
from tests.factories import make_call


def echo(call: Call, times: int) -> Reply:
    return Reply(text=f"{len(call.prompt.token_ids)}", choice_logprobs=(-0.25, -1.5), delay_s=0.0)


async def texts(dispatcher: JournaledDispatcher, calls: list[Call]) -> list[str]:
    return [o.text if isinstance(o, Completion) else o.error async for o in dispatcher.complete(calls)]


async def test_a_completed_call_is_never_made_again(tmp_path: Path) -> None:
    calls = [make_call("a" * n) for n in range(1, 9)]
    first, second = ScriptedModel(echo), ScriptedModel(echo)
    one = JournaledDispatcher(InlineDispatcher(first), Journal(tmp_path / "j.sqlite"), "model")
    expected = await texts(one, calls[:5])
    two = JournaledDispatcher(InlineDispatcher(second), Journal(tmp_path / "j.sqlite"), "model")
    assert (await texts(two, calls))[:5] == expected
    assert len(second.calls) == 3


async def test_another_model_does_not_get_this_ones_completions(tmp_path: Path) -> None:
    model = ScriptedModel(echo)
    journal = Journal(tmp_path / "j.sqlite")
    for fingerprint in ("one", "other"):
        await texts(JournaledDispatcher(InlineDispatcher(model), journal, fingerprint), [make_call()])
    assert len(model.calls) == 2


@settings(max_examples=40, deadline=None)
@given(known=st.lists(st.booleans(), max_size=12))
def test_order_is_kept_whatever_is_known_already(known: list[bool]) -> None:
    import asyncio

    async def check() -> None:
        calls = [make_call("a" * (n + 1)) for n in range(len(known))]
        dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), Journal(Path("/nonexistent/x")), "m")
        await texts(dispatcher, [call for call, is_known in zip(calls, known, strict=True) if is_known])
        assert await texts(dispatcher, calls) == [str(n + 1) for n in range(len(known))]

    logging.disable(logging.WARNING)
    asyncio.run(check())
    logging.disable(logging.NOTSET)


async def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    replies = iter([Reply(error=InternalError("poison")), Reply(text="well")])
    dispatcher = JournaledDispatcher(
        InlineDispatcher(ScriptedModel(lambda call, times: next(replies))), Journal(tmp_path / "j.sqlite"), "m"
    )
    outcomes = [o async for o in dispatcher.complete([make_call()])]
    assert isinstance(outcomes[0], CallFailed)
    assert await texts(dispatcher, [make_call()]) == ["well"]


async def test_a_completion_returns_as_it_was(tmp_path: Path) -> None:
    dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), Journal(tmp_path / "j.sqlite"), "m")
    [paid] = [o async for o in dispatcher.complete([make_call()])]
    [kept] = [o async for o in dispatcher.complete([make_call()])]
    assert isinstance(paid, Completion)
    assert isinstance(kept, Completion)
    assert (kept.text, kept.choice_logprobs, kept.usage) == (paid.text, paid.choice_logprobs, paid.usage)
    assert kept.from_journal


async def test_a_full_disk_costs_the_journal_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(tmp_path / "j.sqlite", most_pages=1)
    dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), journal, "m")
    assert await texts(dispatcher, [make_call("a" * n) for n in range(1, 60)]) == [str(n) for n in range(1, 60)]
    assert not journal.writable
    assert "journal.write_failed" in caplog.text


async def test_a_journal_that_could_not_write_keeps_again_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("pipeline.dispatch.journal.time.monotonic", lambda: now)
    journal = Journal(tmp_path / "j.sqlite", most_pages=1)
    model = ScriptedModel(echo)
    dispatcher = JournaledDispatcher(InlineDispatcher(model, clock=lambda: 0.0), journal, "m")
    calls = [make_call("a" * n) for n in range(1, 90)]
    await texts(dispatcher, calls)
    assert not journal.writable
    journal._connection.execute("PRAGMA max_page_count = 1000000")
    now += 60.0
    await texts(dispatcher, calls)
    assert journal.writable
    made = len(model.calls)
    await texts(dispatcher, calls)
    assert len(model.calls) == made


async def test_a_resumed_run_counts_what_it_paid_for_itself_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    calls = [make_call("a"), make_call("aa"), make_call("aaa"), make_call("a")]

    async def flags(run_id: str, calls: list[Call]) -> list[tuple[bool, bool]]:
        dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), journal, "m", run_id=run_id)
        # One at a time, as calls of different stages come: two equal ones at once are two calls.
        outcomes = [o for call in calls async for o in dispatcher.complete([call])]
        return [(o.from_journal, o.own) for o in outcomes if isinstance(o, Completion)]

    await flags("another", calls[2:3])
    assert await flags("this", calls[:2]) == [(False, False)] * 2
    resumed = await flags("this", calls)
    assert resumed == [(True, True), (True, True), (True, False), (True, False)]


def test_an_interrupted_run_is_found_and_a_finished_one_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.start_run("abc1", {"question": "first"})
    journal.start_run("abd2", {"question": "second"})
    journal.finish_run("abd2")
    latest = journal.find_run()
    assert latest is not None
    assert latest.request == {"question": "first"}
    by_id = journal.find_run("abd")
    assert by_id is not None
    assert by_id.finished_s is not None
    assert journal.find_run("zzz") is None


def test_a_journal_of_an_earlier_version_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE runs (run_id TEXT PRIMARY KEY, request TEXT, started_s REAL, finished_s REAL)")
        old.execute("INSERT INTO runs VALUES ('abc1', '{}', 1.0, NULL)")
    old.close()
    for _ in range(2):
        journal = Journal(path)
        record = journal.find_run("abc1")
        assert record is not None
        assert (record.finished_s, record.answer) == (None, None)
        journal.close()
    journal = Journal(path)
    journal.finish_run("abc1", "Anna Torv")
    assert [run.answer for run in journal.latest_runs(5)] == ["Anna Torv"]


def test_a_forks_history_is_its_parents_up_to_the_edit(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.start_run("parent", {"question": "Who?"})
    history = RunHistory(journal, "parent")
    for number in (1, 2, 3):
        history.save(number, "look", f'{{"n": {number}}}', paused=False)
    journal.fork_run("parent", "fork", replace(journal.checkpoints("parent")[1], edited='{"n": 9}', paused=True))
    journal.fork_run("fork", "forks fork", replace(journal.checkpoints("fork")[1], edited='{"n": 10}', paused=True))
    assert [(at.number, at.edited, at.origin) for at in journal.checkpoints("forks fork")] == [
        (1, None, "parent"),
        (2, '{"n": 10}', "fork"),
    ]
    fork = RunHistory(journal, "fork")
    assert fork.paused_at == 2
    fork.save(2, "look", '{"n": 2}', paused=False)
    edited = RunHistory(journal, "fork").find(2)
    assert edited is not None
    assert (edited.edited, edited.paused, edited.origin) == ('{"n": 9}', True, "parent")
    assert len(journal.checkpoints("parent")) == 3
    record = journal.find_run("fork")
    assert record is not None
    assert record.request == {"question": "Who?"}
