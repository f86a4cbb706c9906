"""No call is paid twice; a lost journal costs the resume, never the run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.errors import InternalError
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, Completion
from pipeline.llm.scripted import Reply, ScriptedModel
from tests.factories import make_call


def echo(call: Call, times: int) -> Reply:
    return Reply(text=f"{len(call.prompt.token_ids)}", choice_logprobs=(-0.25, -1.5), delay_s=0.0)


async def texts(dispatcher: JournaledDispatcher, calls: list[Call]) -> list[str]:
    outcomes = await at_once(map(dispatcher.complete, calls))
    return [one.text if isinstance(one, Completion) else one.error for one in outcomes]


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
def test_every_call_gets_its_own_outcome_whatever_is_known_already(known: list[bool]) -> None:
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
    assert isinstance(await dispatcher.complete(make_call()), CallFailed)
    assert await texts(dispatcher, [make_call()]) == ["well"]


async def test_a_completion_returns_as_it_was(tmp_path: Path) -> None:
    dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), Journal(tmp_path / "j.sqlite"), "m")
    paid = await dispatcher.complete(make_call())
    kept = await dispatcher.complete(make_call())
    assert isinstance(paid, Completion)
    assert isinstance(kept, Completion)
    assert (kept.text, kept.choice_logprobs, kept.usage) == (paid.text, paid.choice_logprobs, paid.usage)
    assert kept.from_journal


def make_room(journal: Journal) -> None:
    journal._connection.execute("PRAGMA max_page_count = 1000000")


async def test_on_a_full_disk_no_call_is_paid_for_until_there_is_room_and_none_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "j.sqlite", max_pages=1, try_again_s=0.02)
    model, told = ScriptedModel(echo), list[str]()
    inner = InlineDispatcher(model, max_calls=4)
    dispatcher = JournaledDispatcher(inner, journal, "m", on_wait=told.append)
    calls = [make_call("a" * n) for n in range(1, 60)]
    running = asyncio.create_task(texts(dispatcher, calls))
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0.01)
    paid = len(model.calls)
    await asyncio.sleep(0.2)
    assert len(model.calls) == paid < len(calls), "nothing more is begun"
    assert journal.is_full
    assert told == ["The disk is full: the run waits, and goes on when there is room."]
    assert [record.message for record in caplog.records if "journal.write_failed" in record.message]
    make_room(journal)
    async with asyncio.timeout(10):
        assert await running == [str(n) for n in range(1, 60)]
    assert told[1:] == ["There is room on the disk again; the run goes on."]
    assert not journal.is_full
    assert len(model.calls) == len(calls)
    assert await texts(dispatcher, calls) == [str(n) for n in range(1, 60)]
    assert len(model.calls) == len(calls), "what completed while it was full is kept too"


async def test_a_disk_that_is_nearly_full_is_not_filled_to_the_last_byte(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite", reserve_bytes=2**60, try_again_s=0.02)
    model = ScriptedModel(echo)
    dispatcher = JournaledDispatcher(InlineDispatcher(model), journal, "m")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await texts(dispatcher, [make_call()])
    assert model.calls == []


async def test_what_is_known_is_answered_on_a_full_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    await texts(JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), Journal(path), "m"), [make_call("abc")])
    full = Journal(path, reserve_bytes=2**60, try_again_s=0.02)
    async with asyncio.timeout(5):
        assert await texts(JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), full, "m"), [make_call("abc")])


async def paid_for(journal: Journal, run_id: str, *contents: str) -> ScriptedModel:
    """Run the calls for `run_id`; the model that was asked what the journal did not know."""
    model = ScriptedModel(echo)
    await texts(
        JournaledDispatcher(InlineDispatcher(model), journal, "m", run_id=run_id), [make_call(c) for c in contents]
    )
    return model


async def test_two_processes_that_write_at_once_both_write(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "j.sqlite"), Journal(tmp_path / "j.sqlite")
    contents = ["a" * n for n in range(1, 21)]
    for n, content in enumerate(contents):
        await paid_for(first if n % 2 else second, f"run{n}", content)
    assert (await paid_for(first, "after", *contents)).calls == []


async def test_a_forgotten_run_takes_along_what_no_other_run_has_used(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    await paid_for(journal, "one", "a", "aa", "aaa")
    assert len((await paid_for(journal, "two", "aa")).calls) == 0
    assert journal.forget_runs(["one"]) == 2
    assert len((await paid_for(journal, "three", "a", "aa", "aaa")).calls) == 2, "the second run's is still there"
    assert journal.forget_runs(["two", "unknown"]) == 0, "the third run has used it meanwhile"


async def test_what_was_deleted_is_not_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    journal = Journal(path)
    secret = ScriptedModel(lambda call, times: Reply(text="CANARY-51b7"))
    await texts(JournaledDispatcher(InlineDispatcher(secret), journal, "m", run_id="r"), [make_call()])
    journal.forget_runs(["r"])
    journal.close()
    assert b"CANARY-51b7" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


async def test_old_calls_go_and_then_the_oldest_beyond_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("pipeline.dispatch.journal.time.time", lambda: now_s)
    journal = Journal(tmp_path / "j.sqlite")
    await paid_for(journal, "old", "a")
    now_s = 2000.0
    await paid_for(journal, "new", *("b" * n for n in range(1, 1500, 2)))
    assert journal.prune(before_unix_s=1500.0, max_bytes=2**40) == 1
    size = journal.size_bytes
    removed = 0
    while gone := journal.prune(before_unix_s=1500.0, max_bytes=size // 2):
        removed += gone
    assert removed >= 300
    assert journal.size_bytes <= size // 2
    assert len((await paid_for(journal, "x", "b" * 1499)).calls) == 0, "the latest ones stay"


async def test_a_journal_of_an_earlier_version_knows_whose_its_calls_are(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    await paid_for(journal, "one", "a", "aa")
    journal._connection.execute("DROP TABLE run_calls")
    journal.close()
    assert Journal(tmp_path / "j.sqlite").forget_runs(["one"]) == 2


async def test_a_resumed_run_counts_what_it_paid_for_itself_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    calls = [make_call("a"), make_call("aa"), make_call("aaa"), make_call("a")]

    async def flags(run_id: str, calls: list[Call]) -> list[tuple[bool, bool]]:
        dispatcher = JournaledDispatcher(InlineDispatcher(ScriptedModel(echo)), journal, "m", run_id=run_id)
        # One at a time, as calls of different stages come: two equal ones at once are two calls.
        outcomes = [await dispatcher.complete(call) for call in calls]
        return [(o.from_journal, o.own) for o in outcomes if isinstance(o, Completion)]

    await flags("another", calls[2:3])
    assert await flags("this", calls[:2]) == [(False, False)] * 2
    resumed = await flags("this", calls)
    assert resumed == [(True, True), (True, True), (True, False), (True, False)]
