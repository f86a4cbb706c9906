"""`longfold ask` with a scripted model in place of cluster and engine: output, exit codes, journal, resume."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.errors import OutOfMemory
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply
from serving.cli import ask, asking
from serving.cli.main import app
from tests.factories import fact_document
from tests.unit.cli.command_stage import FACT, Stage


def test_the_answer_comes_with_its_quote_and_where_it_stands(stage: Stage) -> None:
    result = stage.run(str(stage.document), "-q", "Who is the keeper?")
    assert result.exit_code == 0, result.output
    assert "Answer: Anna Torv" in result.stdout
    assert FACT in result.stdout
    assert f"{stage.document}, line 15, characters" in result.stdout
    assert "Plan: mapreduce" in result.stderr
    assert "Plan" not in result.stdout


def test_json_is_one_object_and_its_quotes_are_the_documents(stage: Stage) -> None:
    result = stage.run(str(stage.document), "-q", "Who is the keeper?", "--json")
    record = json.loads(result.stdout)
    assert (record["answer"], record["found"]) == ("Anna Torv", True)
    quote = record["evidence"][0]
    text = stage.document.read_text()
    assert text[quote["start"] : quote["end"]] == quote["quote"]
    assert record["document"]["sources"][0]["name"] == str(stage.document)
    assert record["coverage"]["chunks_read"] == record["coverage"]["chunks"] > 1
    assert result.stderr == ""


def test_what_the_document_does_not_say_is_said_and_is_no_error(stage: Stage) -> None:
    stage.document.write_text(fact_document({}, paragraphs=30).text)
    result = stage.run(str(stage.document), "-q", "Who is the keeper?")
    assert result.exit_code == 0, result.output
    assert "The document does not say." in result.stdout


def test_a_plan_starts_no_engine(stage: Stage) -> None:
    result = stage.run(str(stage.document), "-q", "Who?", "--plan")
    assert result.exit_code == 0, result.output
    assert "Calls" in result.stdout
    assert "not known" in result.stdout
    record = json.loads(stage.run(str(stage.document), "-q", "Who?", "--plan", "--json").stdout)
    assert record["plan"]["calls"] > 1
    assert stage.opened == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-q", "Who?", "--task", "poetry"], "No task 'poetry'"),
        (["-q", "Who?", "--strategy", "guess"], "No strategy 'guess'"),
        (["-q", "Who?", "--choice", "one"], "at least two options"),
        (["-q", "word " * 9000], "The question has"),
        ([], "There is no question"),
        (["-q", "Who?", "--chunk-tokens", "10"], "too small"),
    ],
)
def test_a_request_at_fault_ends_before_an_engine_starts(stage: Stage, arguments: list[str], message: str) -> None:
    result = stage.run(str(stage.document), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert stage.opened == 0


def test_an_error_in_json_mode_is_json_too(stage: Stage) -> None:
    result = stage.run("missing.txt", "-q", "Who?", "--json")
    assert json.loads(result.stdout)["error"]["type"] == "DocumentUnreadable"
    assert result.exit_code == 2


def test_an_engine_that_cannot_start_ends_with_its_reason(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OutOfMemory

    monkeypatch.setattr(asking, "open_session", refuse)
    result = stage.run(str(stage.document), "-q", "Who?")
    assert result.exit_code == 3
    assert "does not fit into the free memory" in result.stderr


def test_a_fault_of_our_own_is_one_line_and_exit_code_5(stage: Stage) -> None:
    def broken(call: Call, times: int) -> Reply:
        raise ZeroDivisionError("in the model")

    stage.script = broken
    result = stage.run(str(stage.document), "-q", "Who?")
    assert result.exit_code == 5 or "could not be read" in result.stdout
    assert "Traceback" not in result.output


def test_nothing_read_is_a_failure(stage: Stage) -> None:
    stage.script = lambda call, times: Reply(error=OutOfMemory())
    result = stage.run(str(stage.document), "-q", "Who is the keeper?")
    assert result.exit_code == 3
    assert "Not read: chunk 0" in result.stdout


def test_the_same_question_again_costs_no_call_unless_fresh(stage: Stage) -> None:
    arguments = [str(stage.document), "-q", "Who is the keeper?"]
    stage.run(*arguments)
    stage.run(*arguments)
    assert stage.model is not None
    assert stage.model.calls == []
    stage.run(*arguments, "--fresh")
    assert len(stage.model.calls) > 1


def test_an_interrupted_run_says_how_to_resume_and_pays_no_call_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, calls = stage.script, 0

    def interrupted(call: Call, times: int) -> Reply:
        nonlocal calls
        calls += 1
        if calls > 3:
            return Reply(stalls=True)
        return reading(call, times)

    run = asyncio.Runner.run

    def run_until_stalled(self: asyncio.Runner, coroutine: Any, **options: Any) -> Any:
        async def press_ctrl_c() -> Any:
            task = asyncio.get_running_loop().create_task(coroutine)
            done, _ = await asyncio.wait([task], timeout=0.5)
            if not done:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return None
            return task.result()

        answer = run(self, press_ctrl_c(), **options)
        if answer is None:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(asyncio.Runner, "run", run_until_stalled)
    stage.script = interrupted
    result = stage.run(str(stage.document), "-q", "Who is the keeper?")
    assert result.exit_code == 130
    run_id = result.stderr.strip().rpartition(" ")[2]
    assert f"longfold jobs resume {run_id}" in result.stderr
    assert stage.model is not None
    assert stage.model.running == 0

    paid = {call.key("x") for call in stage.model.calls[:3]}
    stage.script = reading
    result = stage.jobs("resume", run_id)
    assert "Answer: Anna Torv" in result.stdout, result.output
    assert paid.isdisjoint(call.key("x") for call in stage.model.calls)
    assert stage.jobs("resume").exit_code == 2, "the run is finished, so there is nothing to resume"


def test_limits_stop_reading_and_say_so(stage: Stage) -> None:
    result = stage.run(str(stage.document), "-q", "Who is the keeper?", "--max-calls", "1")
    assert "limit on calls" in result.stdout


def test_a_document_on_standard_input_is_read(stage: Stage) -> None:
    result = stage.run("-", "-q", "Who is the keeper?", stdin=fact_document({1: FACT}).text)
    assert "Answer: Anna Torv" in result.stdout, result.output
    assert "standard input, line" in result.stdout


def test_questions_one_after_another_on_a_terminal(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = iter(["Who is the keeper?", "", "Who keeps it?"])

    def ask_user(prompt: str) -> str:
        try:
            return next(questions)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", ask_user)
    monkeypatch.setattr(ask, "_is_terminal", lambda: True)
    result = stage.run(str(stage.document))
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Answer: Anna Torv") == 2
    assert "than the first" in result.stdout
    assert stage.opened == 1


def test_a_usage_error_is_exit_code_2() -> None:
    result = CliRunner().invoke(app, ["ask", "--no-such-option"])
    assert result.exit_code == 2


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("longfold ")


def test_models_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["models", "list"])
    assert "qwen2.5-coder-1.5b" in result.stdout
    assert "not pulled" in result.stdout
