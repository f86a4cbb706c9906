"""`longfold ask --updates`: the steps of a run on standard output, one line each, while it runs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from pipeline.errors import OutOfMemory
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply, seeded_script
from pipeline.strategies import STRATEGIES
from serving.cli import ask
from serving.cli.output import print_json
from tests.factories import fact_document
from tests.unit.cli.command_stage import Stage

ASKED = ("-q", "Who is the keeper?")


def lines(output: str) -> list[tuple[str, Any]]:
    """Node and update of each line."""
    return [next(iter(json.loads(line).items())) for line in output.splitlines()]


def test_every_step_is_a_line_and_the_answer_is_the_last(stage: Stage) -> None:
    result = stage.run(str(stage.document), *ASKED, "--updates", "--fresh")
    assert (result.exit_code, result.stderr) == (0, "")
    told = lines(result.stdout)
    assert all(len(json.loads(line)) == 1 for line in result.stdout.splitlines())
    answer = told[-1][1]
    assert (told[-1][0], answer["answer"]) == ("answer", "Anna Torv")
    assert told[-2] == ("reduce", {"final_answer": "Anna Torv"})
    nodes = Counter(node for node, _ in told)
    assert nodes["gate"] == answer["coverage"]["chunks"]
    assert nodes["map"] == answer["coverage"]["chunks_extracted"]
    assert ["Anna Torv"] in [update["findings"] for node, update in told if node == "map"]


def test_the_last_line_is_what_json_prints(stage: Stage) -> None:
    arguments = (str(stage.document), *ASKED, "--fresh")
    streamed = lines(stage.run(*arguments, "--updates").stdout)[-1][1]
    printed = json.loads(stage.run(*arguments, "--json").stdout)
    assert streamed.keys() == printed.keys()
    assert streamed["evidence"] == printed["evidence"]


def test_a_step_is_printed_before_the_next_one_is_asked_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refine reads one chunk after another, so each line must be out before the next call begins."""
    order: list[str] = []
    reading, show = stage.script, print_json

    def noting(call: Call, times: int) -> Reply:
        order.append("call")
        return reading(call, times)

    def printing(record: Any) -> None:
        order.append(next(iter(record)))
        show(record)

    monkeypatch.setattr(ask, "print_json", printing)
    stage.script = noting
    stage.run(str(stage.document), *ASKED, "--strategy", "refine", "--updates")
    chunks = order.count("call")
    assert order == [*["call", "map"] * chunks, "collect", "reduce", "answer"]


def test_langgraphs_schedule_is_told_under_the_names_of_its_guide(stage: Stage) -> None:
    stage.script = seeded_script(1)
    result = stage.run(str(stage.document), *ASKED, "--strategy", "langchain", "--updates")
    told = lines(result.stdout)
    nodes = [node for node, _ in told]
    chunks = told[-1][1]["coverage"]["chunks"]
    assert nodes[: chunks + 1] == [*["generate_summary"] * chunks, "collect_summaries"]
    assert nodes[-2:] == ["generate_final_summary", "answer"]
    assert told[-2][1] == {"final_summary": told[-1][1]["answer"]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_ends_with_its_answer_and_tells_each_chunk(stage: Stage, strategy: str) -> None:
    stage.script = seeded_script(2)
    if strategy == "direct":
        stage.document.write_text(fact_document({}, paragraphs=4).text)
    told = lines(stage.run(str(stage.document), *ASKED, "--strategy", strategy, "--updates").stdout)
    assert told[-1][0] == "answer"
    assert [node for node, _ in told].count("collect") <= 1
    if told[-1][1]["usage"].keys() == {"direct"}:
        assert [node for node, _ in told] == ["reduce", "answer"]
        return
    read = {update["chunk"] for _, update in told[:-1] if "chunk" in update}
    assert len(read) == told[-1][1]["coverage"]["chunks_read"]


def test_a_run_that_cannot_begin_is_one_line_too(stage: Stage) -> None:
    result = stage.run("missing.txt", *ASKED, "--updates")
    assert result.exit_code == 2
    [(node, error)] = lines(result.stdout)
    assert (node, error["type"]) == ("error", "DocumentUnreadable")


def test_a_run_of_which_nothing_was_read_keeps_its_exit_code(stage: Stage) -> None:
    stage.script = lambda call, times: Reply(error=OutOfMemory())
    result = stage.run(str(stage.document), *ASKED, "--updates")
    assert result.exit_code == 3
    assert lines(result.stdout)[-1][1]["found"] is False


def test_it_asks_for_a_question_as_json_does(stage: Stage) -> None:
    result = stage.run(str(stage.document), "--updates")
    assert (result.exit_code, lines(result.stdout)[0][0]) == (2, "error")


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    """As in `longfold ask ... --updates | head -1`, where the pipe breaks inside the run."""
    program = """
from serving.cli import ask as ask_command, main as cli
def run_ask(question, options, settings):
    try:
        while True:
            ask_command.print_json({"map": {"findings": ["x" * 4096]}})
    except BrokenPipeError as error:
        raise ExceptionGroup("tasks", [error])
ask_command.run_ask = run_ask
cli.app(["ask", "a.txt", "-q", "Who?", "--updates"])
"""
    with Popen([sys.executable, "-c", program], stdout=PIPE, stderr=PIPE, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"map"')
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)
