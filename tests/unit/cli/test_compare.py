"""`longfold compare`: strategies one after another on one session, and what their answers have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.documents.document import Span
from pipeline.errors import CollapseStalled, OutOfMemory
from pipeline.findings.answer import Answer, Coverage
from pipeline.findings.finding import Alignment, Evidence
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply
from serving.cli import compare
from serving.cli.compare import DEFAULT_STRATEGIES
from serving.cli.compare_answers import evidence_overlaps, exit_code_of_all
from tests.factories import fact_document
from tests.unit.cli.command_stage import Stage

ASKED = ("-q", "Who is the keeper?")
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda place: Span(place[0], place[0] + place[1])), max_size=5
)


def answer_on(spans: list[Span]) -> Answer:
    evidence = [Evidence(quote="", chunk_index=0, span=span, alignment=Alignment.POINTER) for span in spans]
    return Answer(
        text="x",
        explanation="",
        found=True,
        confidence=3,
        probability=0.5,
        evidence=tuple(evidence),
        coverage=Coverage(chunks=1, chunks_read=1, chunks_extracted=1),
    )


def row_of(strategy: str, text: str) -> tuple[str, str]:
    """The strategy's figures and the line beneath them."""
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.split(" ")[0] == strategy)
    return lines[at], lines[at + 1]


def test_every_strategy_has_its_figures_and_its_answer_on_one_engine(stage: Stage) -> None:
    result = stage.compare(*ASKED, "--strategies", "mapreduce,refine,truncate")
    assert result.exit_code == 0, result.output
    assert stage.opened == 1
    for strategy in ("mapreduce", "refine"):
        figures, answer = row_of(strategy, result.stdout)
        assert figures.split()[1] == "yes"
        assert answer.strip() == "Anna Torv"
    assert "1 of 3: mapreduce" in result.stderr
    assert "Plan: refine" in result.stderr
    assert "Plan" not in result.stdout


def test_the_default_strategies_are_compared_when_none_are_named(stage: Stage) -> None:
    record = json.loads(stage.compare(*ASKED, "--json").stdout)
    assert [one["strategy"] for one in record["strategies"]] == DEFAULT_STRATEGIES.split(",")


def test_json_holds_each_answer_as_ask_tells_it_with_plan_sums_and_overlap(stage: Stage) -> None:
    compared = stage.compare(*ASKED, "--strategies", "mapreduce,refine", "--json", "--fresh")
    assert compared.stderr == ""
    first, second = json.loads(compared.stdout)["strategies"]
    asked = json.loads(stage.run(str(stage.document), *ASKED, "--strategy", "mapreduce", "--json", "--fresh").stdout)
    for same in ("answer", "found", "confidence", "probability", "evidence", "coverage", "warnings"):
        assert first[same] == asked[same]
    assert first["evidence_overlap"] == second["evidence_overlap"] == 1.0
    assert first["total_usage"]["calls"] == sum(stage_["calls"] for stage_ in first["usage"].values()) > 0
    assert second["plan"]["depth"] == second["plan"]["calls"]


def test_a_document_too_long_for_one_call_is_a_row_with_its_reason(stage: Stage) -> None:
    result = stage.compare(*ASKED, "--strategies", "direct,mapreduce")
    assert result.exit_code == 0
    assert "DocumentTooLong: The document is" in row_of("direct", result.stdout)[1]
    assert row_of("mapreduce", result.stdout)[1].strip() == "Anna Torv"


def test_a_strategy_that_fails_while_it_runs_does_not_end_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.session import Session

    ask = Session.ask

    async def stalling(self: Session, document: Any, request: Any, *rest: Any, **options: Any) -> Answer:
        if request.strategy == "refine":
            raise CollapseStalled
        return await ask(self, document, request, *rest, **options)

    monkeypatch.setattr(Session, "ask", stalling)
    record = json.loads(stage.compare(*ASKED, "--strategies", "refine,mapreduce", "--json").stdout)
    failed, answered = record["strategies"]
    assert failed["error"]["type"] == "CollapseStalled"
    assert (answered["answer"], answered["evidence_overlap"]) == ("Anna Torv", None)


def test_prices_start_no_engine_and_tell_who_cannot(stage: Stage) -> None:
    arguments = (*ASKED, "--strategies", "direct,mapreduce,truncate", "--plan")
    result = stage.compare(*arguments)
    assert result.exit_code == 0, result.output
    assert "DocumentTooLong" in row_of("direct", result.stdout)[1]
    assert row_of("truncate", result.stdout)[0].split()[1:3] == ["1", "1"]
    record = json.loads(stage.compare(*arguments, "--json").stdout)
    assert [("plan" in one, "error" in one) for one in record["strategies"]] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert stage.opened == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-q", "Who?", "--strategies", "mapreduce,guess"], "No strategy 'guess'"),
        (["-q", "Who?", "--strategies", " ,"], "no strategy to compare"),
        (["-q", "Who?", "--task", "poetry"], "No task 'poetry'"),
        (["-q", "Who?", "--strategies", "direct"], "too long for one call"),
        ([], "There is no question"),
    ],
)
def test_what_no_strategy_can_serve_ends_before_an_engine_starts(
    stage: Stage, arguments: list[str], message: str
) -> None:
    result = stage.compare(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert json.loads(stage.compare(*arguments, "--json").stdout)["error"]["message"]
    assert stage.opened == 0


def test_it_is_a_failure_only_if_none_could_answer(stage: Stage) -> None:
    stage.script = lambda call, times: Reply(error=OutOfMemory())
    result = stage.compare(*ASKED, "--strategies", "direct,mapreduce")
    assert "Nothing could be read: " in row_of("mapreduce", result.stdout)[1]
    assert result.exit_code == 2, "that of the first"
    assert exit_code_of_all([2, 3, 0]) == 0
    assert exit_code_of_all([3, 2]) == 3


def test_what_the_document_does_not_say_is_an_answer(stage: Stage) -> None:
    stage.document.write_text(fact_document({}, paragraphs=30).text)
    result = stage.compare(*ASKED, "--strategies", "mapreduce,map_rerank")
    assert result.exit_code == 0
    assert row_of("mapreduce", result.stdout)[1].strip() == "The document does not say."


def test_an_interrupted_comparison_shows_what_it_has(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = compare._run
    begun = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(compare, "_run", interrupted)
    result = stage.compare(*ASKED, "--strategies", "mapreduce,refine,map_rerank")
    assert result.exit_code == 130
    assert row_of("mapreduce", result.stdout)[1].strip() == "Anna Torv"
    assert row_of("map_rerank", result.stdout)[1].strip() == "It was not finished."


def test_calls_from_the_journal_are_told_apart_and_fresh_pays_for_all(stage: Stage) -> None:
    arguments = (*ASKED, "--strategies", "mapreduce,refine")
    stage.compare(*arguments)
    assert "--fresh pays for all" in stage.compare(*arguments).stdout
    assert stage.model is not None
    assert stage.model.calls == []
    assert "--fresh pays for all" not in stage.compare(*arguments, "--fresh").stdout


def test_no_control_character_of_an_answer_reaches_the_terminal(stage: Stage) -> None:
    reading = stage.script

    def hostile(call: Call, times: int) -> Reply:
        reply = reading(call, times)
        return Reply(text=reply.text.replace("Anna", r"\u001b[31mAnna"), choice_logprobs=reply.choice_logprobs)

    stage.script = hostile
    result = stage.compare(*ASKED, "--strategies", "mapreduce")
    assert "Anna Torv" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_short_quote_within_a_long_one_is_shared_wholly_and_the_long_one_in_part() -> None:
    long, short = answer_on([Span(0, 100)]), answer_on([Span(10, 20), Span(15, 30)])
    assert evidence_overlaps([long, short]) == [0.2, 1.0]


def test_without_evidence_on_either_side_there_is_no_overlap() -> None:
    assert evidence_overlaps([answer_on([Span(0, 5)]), answer_on([]), None]) == [None, None, None]


@given(st.lists(SPANS, max_size=4))
def test_overlap_is_the_share_of_characters_that_others_cover(quotes: list[list[Span]]) -> None:
    covered = [{at for span in spans for at in range(span.start, span.end)} for spans in quotes]
    for place, overlap in enumerate(evidence_overlaps([answer_on(spans) for spans in quotes])):
        own, others = covered[place], set().union(*covered[:place], *covered[place + 1 :])
        assert overlap == (len(own & others) / len(own) if own and others else None)
