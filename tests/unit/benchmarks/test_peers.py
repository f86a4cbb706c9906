"""The suite `peers`: the recipe makes the calls that it is published to make, costs are added up, prose is scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.data.items import BenchItem
from benchmarks.data.question_set import make_documents
from benchmarks.data.score import score_prose
from benchmarks.suites.peers import SUITE
from benchmarks.systems.model import byte_tokenizer
from benchmarks.systems.peers import OUTPUT_TOKENS, Peers, add_up_jobs
from pipeline.errors import SettingInvalid, UnknownName
from pipeline.llm.model import Usage

HEADER = {
    "settings": {"chunk_tokens": None},
    "model": {"name": "m", "chunk_tokens": 2000},
    "hardware": {"cpu": "a processor", "cores": 2},
}


def item(kind: str) -> BenchItem:
    present = kind != "absent"
    return BenchItem(
        id="1-0-0",
        question="How many sailors?",
        kind=kind,  # type: ignore[arg-type]
        accepted=("718",) if present else (),
        rejected=("540",),
        spans=(),
        language="en",
        seed=1,
    )


def row(way: str, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "key": f"{way}/1-0-{number}", "variant": way, "verdict": "right", "first": number == 0, "seconds": 10.0,
        "document_tokens": 9_000, "calls": 6, "prompt_tokens": 9_500, "cached_tokens": 500, "output_tokens": 300,
        "remembered_calls": 0, "kind": "lookup", "states": None,
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "verdict"),
    [
        ("lookup", "It carries 718 sailors.", "right"),
        ("lookup", "The text does not say much, but 718 serve on it.", "right"),
        ("lookup", "718 or 540", "wrong"),
        ("lookup", "Not in the document.", "abstained"),
        ("lookup", "The document does not mention it.", "abstained"),
        ("lookup", "540", "wrong"),
        ("lookup", "", "abstained"),
        ("absent", "The notes do not provide this.", "right"),
        ("absent", "There is no information about it.", "right"),
        ("absent", "文中没有提到。", "right"),
        ("absent", "718", "wrong"),
    ],
)
def test_prose_abstains_by_its_words_unless_it_holds_the_answer(kind: str, text: str, verdict: str) -> None:
    assert score_prose(item(kind), text) == verdict


async def ask_fake(chunks: list[str], reply: Callable[[str], str]) -> tuple[str, list[str]]:
    """The recipe on a model that replies at once; words are tokens."""
    pytest.importorskip("langgraph")
    from langchain_core.runnables import RunnableLambda

    from benchmarks.systems.langgraph import ask_recipe

    asked: list[str] = []

    def complete(prompt: Any) -> Any:
        asked.append(str(prompt))
        return type("Said", (), {"content": reply(str(prompt))})()

    model: Any = RunnableLambda(complete)
    answer = await ask_recipe(model, chunks, "How many?", lambda text: len(text.split()), max_concurrency=4)
    return answer, asked


@pytest.mark.parametrize(("chunks", "note_words", "calls"), [(3, 100, 4), (14, 100, 17)])
async def test_the_recipe_makes_as_many_calls_as_published(chunks: int, note_words: int, calls: int) -> None:
    """14 notes of 100 tokens are over 1,000: two groups are collapsed before the last call."""
    note = "word " * note_words
    answer, asked = await ask_fake([f"chunk {n}" for n in range(chunks)], lambda _: note)
    assert len(asked) == calls
    assert answer == note
    assert sum("part of a longer document" in prompt for prompt in asked) == chunks


async def test_the_recipe_hands_on_notes_in_the_order_of_the_document() -> None:
    _, asked = await ask_fake(["one", "two", "three"], lambda prompt: f"note on {prompt.split()[8]}")
    notes = ["note on one", "note on two", "note on three"]
    assert "\n\n".join(notes) in asked[-1]


async def test_the_recipe_fails_where_notes_never_shrink() -> None:
    errors = pytest.importorskip("langgraph.errors")
    with pytest.raises(errors.GraphRecursionError):
        await ask_fake(["a", "b"], lambda _: "word " * 2_000)


def peers(context_tokens: int) -> Peers:
    return Peers(
        url="http://127.0.0.1:1", model="m", tokenizer=byte_tokenizer(), context_tokens=context_tokens, chunk_tokens=600
    )


def test_a_truncated_call_fits_and_keeps_both_ends() -> None:
    text = "BEGIN " + "middle " * 1_000 + "END"
    message = peers(2_000).truncate(text, "Where?")
    assert len(message.encode()) + OUTPUT_TOKENS < 2_000
    assert "BEGIN" in message
    assert "END" in message
    assert "[...]" in message
    assert "Where?" in message
    assert text in peers(20_000).truncate(text, "Where?")
    with pytest.raises(SettingInvalid):
        peers(600).truncate(text, "Where?")


def test_the_recipe_reads_the_chunks_that_our_strategies_read() -> None:
    document = make_documents(3, 1, 600, 1, ("en",), ("lookup",))[0]
    chunks = peers(2_000).chunks(document)
    assert len(chunks) > 1
    assert "".join(chunks) == document.text


async def test_what_a_question_cost_is_the_sum_over_the_jobs_since_the_last_one() -> None:
    used = {"calls": 1, "prompt_tokens": 100, "cached_tokens": 40, "output_tokens": 5, "journal_calls": 0}
    jobs = [{"id": f"job_{n}", "usage": {"map": used, "reduce": used} if n % 2 else None} for n in range(9, 0, -1)]

    def page(request: httpx2.Request) -> httpx2.Response:
        after = request.url.params.get("after")
        start = next(place for place, job in enumerate(jobs) if job["id"] == after) + 1 if after else 0
        shown = jobs[start : start + 2]
        more = start + 2 < len(jobs)
        return httpx2.Response(200, json={"data": shown, "has_more": more, "last_id": shown[-1]["id"]})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(page), base_url="http://test") as client:
        since = await add_up_jobs(client, since="job_4")
        assert since.last_job == "job_9"
        assert since.usage == Usage(calls=6, prompt_tokens=600, cached_tokens=240, output_tokens=30)
        assert (await add_up_jobs(client)).usage.calls == 10


def test_the_report_shows_each_way_its_failures_and_what_was_computed() -> None:
    rows = [row("mapreduce", 0), row("mapreduce", 1, seconds=4.0), row("langgraph", 0, verdict="wrong", seconds=8.0)]
    lines = SUITE.report(HEADER, rows, ["langgraph/1-0-1", "truncated/1-0-0"])
    table = {line.split()[0]: line.split() for line in lines[2:5]}
    assert " ".join(table["mapreduce"]) == "mapreduce 2 of 2 0 0 0 10.0 4.0 6 9,500 9,000 300"
    assert " ".join(table["langgraph"]) == "langgraph 0 of 1 1 0 1 8.0 - 6 9,500 9,000 300"
    assert " ".join(table["truncated"]) == "truncated 0 of 0 0 0 1 - - - - - -"
    assert any("mapreduce - langgraph" in line and "right" in line for line in lines)
    assert not any("WARNING" in line for line in lines)
    assert any("WARNING" in line for line in SUITE.report(HEADER, [row("mapreduce", 0, remembered_calls=1)], []))


def test_the_picture_has_a_bar_for_each_way() -> None:
    assert SUITE.picture is not None
    drawn = SUITE.picture(HEADER, [row("mapreduce", 0), row("langgraph", 0)], [])
    assert drawn.count(">mapreduce<") == drawn.count(">langgraph<") == 2
    assert "10.0 s" in drawn


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    command = ["run", "peers", "--quick", "--model", "scripted", "--out", str(tmp_path), "--set", "strategies=nothing"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == UnknownName.exit_code
