"""`longfold ask --pause-before` and `longfold jobs ...`, on a scripted model."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import CallerError, StateInvalid
from pipeline.llm.model import Stage as CallStage
from pipeline.llm.scripted import Reply, seeded_script
from serving.cli import jobs
from serving.cli.command_settings import command_settings
from tests.factories import fact_document, make_tokenizer, reading_script
from tests.unit.cli.command_stage import FACT, Stage

OTHER = "Some say the keeper is Berta Lund."
ASKED = ("-q", "Who is the keeper?", "--strategy", "mapreduce")


@pytest.fixture
def paused(stage: Stage) -> Stage:
    """A run that found two answers and stopped before it chose."""
    stage.document.write_text(fact_document({7: FACT, 20: OTHER}, paragraphs=30).text)
    stage.script = reading_script(make_tokenizer(), [(FACT, "Anna Torv"), (OTHER, "Berta Lund")])
    return stage


def pause(stage: Stage, *options: str) -> Any:
    result = stage.run(str(stage.document), *ASKED, "--pause-before", "reduce", *options)
    assert result.exit_code == 6, result.output
    return result


def paused_run(stage: Stage) -> str:
    return str(json.loads(pause(stage, "--json").stdout)["paused"]["job"])


def stages(stage: Stage) -> list[CallStage]:
    return [call.stage for call in stage.model.calls] if stage.model else []


def shown_state(stage: Stage, run: str, at: int = 1) -> Any:
    return json.loads(stage.jobs("show", run, "--at", str(at)).stdout)


def edit(stage: Stage, run: str, state: object, *, command: str = "edit") -> Any:
    file = stage.document.with_name("state.json")
    file.write_text(state if isinstance(state, str) else json.dumps(state))
    return stage.jobs(command, run, str(file), "--at", "1")


def test_a_pause_shows_what_was_found_where_and_how_to_go_on(paused: Stage) -> None:
    result = pause(paused)
    lines = result.stdout.splitlines()
    run = lines[-1].rpartition(" ")[2]
    assert f"Paused before step 1 (reduce) of {run}." in lines
    assert "Found so far: 2" in lines
    assert any(line.startswith("  Anna Torv (") for line in lines)
    assert f"{paused.document}, line 15, characters" in result.stdout
    assert f"To edit this: longfold jobs edit {run}" in lines
    assert f"To go on:     longfold jobs resume {run}" in lines


def test_a_pause_is_one_object_in_json_and_the_last_line_of_updates(paused: Stage) -> None:
    told = json.loads(pause(paused, "--json").stdout)["paused"]
    assert (told["step"], told["before"]) == (1, "reduce")
    assert [finding["answer"] for finding in told["state"]["findings"]] == ["Anna Torv", "Berta Lund"]
    last = json.loads(pause(paused, "--updates").stdout.splitlines()[-1])
    assert last["paused"]["state"] == told["state"]


def test_a_paused_run_goes_on_without_a_call_of_its_map(paused: Stage) -> None:
    result = paused.jobs("resume", paused_run(paused))
    assert "Answer: Anna Torv" in result.stdout, result.output
    assert set(stages(paused)) <= {CallStage.REDUCE}


def test_an_edited_run_answers_from_the_edit_and_says_so(paused: Stage) -> None:
    run = paused_run(paused)
    state = shown_state(paused, run)
    state["findings"] = [finding for finding in state["findings"] if finding["answer"] != "Anna Torv"]
    result = edit(paused, run, state)
    assert f"To go on: longfold jobs resume {run}" in result.stdout, result.output
    assert shown_state(paused, run) == state
    result = paused.jobs("resume", run)
    assert "Answer: Berta Lund" in result.stdout, result.output
    assert "Warning: The state before step 1 (reduce) was edited manually." in result.stdout
    assert stages(paused) == []


def test_a_fork_leaves_its_parent_as_it_was(paused: Stage) -> None:
    paused.run(str(paused.document), *ASKED)
    parent = paused.jobs("list").stdout.split()[0]
    state = shown_state(paused, parent)
    state["findings"][0] = {"answer": "Carl Ost", "evidence": [OTHER], "stated_confidence": 5}
    del state["findings"][1]
    result = edit(paused, parent, state, command="fork")
    fork = result.stdout.splitlines()[0].split()[1].rstrip(",")
    assert fork != parent
    assert "Answer: Carl Ost" in paused.jobs("resume", fork).stdout
    assert stages(paused) == []
    history = paused.jobs("show", parent).stdout
    assert "Answer:   Anna Torv" in history
    assert "edited" not in history
    history = paused.jobs("show", fork).stdout
    assert "Answer:   Carl Ost" in history
    assert f"   1  reduce     1 findings (edited, from {parent})" in history
    listed = paused.jobs("list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [fork, parent]
    assert all("completed" in line and "Who is the keeper? (harbour.txt)" in line for line in listed)


def test_the_history_shows_each_step_and_where_the_run_stands(paused: Stage) -> None:
    result = paused.run(str(paused.document), *ASKED[:2], "--strategy", "refine", "--max-steps", "2")
    assert result.exit_code == 2
    assert "longfold: The run may take 2 steps, and 'refine' would be one more." in result.stderr
    run = paused.jobs("list").stdout.split()[0]
    assert f"longfold jobs resume {run} --max-steps" in result.stderr
    history = paused.jobs("show", run[:-3]).stdout
    assert f"Job {run}, failed before refine (step 2)" in history
    assert "   1  refine     answer null" in history
    assert paused.jobs("resume", run, "--max-steps", "500").exit_code == 0


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ('{"findings": [', "Line 1, column 15: this is no JSON"),
        ({"finding": []}, "the state: 'finding' is not known here; the fields are findings"),
        ({"findings": [{"answer": "x", "evidence": ["It rained."]}]}, "findings[0].evidence[0].quote does not stand"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused_at_once_and_changes_nothing(
    paused: Stage, state: object, message: str
) -> None:
    run = paused_run(paused)
    before = shown_state(paused, run)
    opened = paused.opened
    result = edit(paused, run, state)
    assert result.exit_code == 2
    assert message in result.stderr
    assert shown_state(paused, run) == before
    assert edit(paused, run, state, command="fork").exit_code == 2
    assert len(paused.jobs("list").stdout.splitlines()) == 1
    assert paused.opened == opened, "no engine is started to find out"


def test_writing_the_state_back_takes_an_edit_back(paused: Stage) -> None:
    run = paused_run(paused)
    state = shown_state(paused, run)
    edit(paused, run, {"findings": []})
    edit(paused, run, json.dumps(state, indent=4))
    result = paused.jobs("resume", run)
    assert "Answer: Anna Torv" in result.stdout
    assert "by hand" not in result.stdout


def write_editor(stage: Stage, body: str) -> str:
    """An editor that changes its file by a program."""
    program = stage.document.with_name("editor.py")
    program.write_text(f"import sys\ntext = open(sys.argv[1]).read()\n{body}\nopen(sys.argv[1], 'w').write(text)\n")
    return f"{sys.executable} {program}"


def test_an_editor_is_opened_on_the_state_and_a_broken_text_is_kept(
    paused: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paused_run(paused)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", write_editor(paused, "text = text.replace('Anna Torv\",', 'Dora Vik\",') + ']'"))
    with pytest.raises(StateInvalid, match="this is no JSON"):
        jobs.edit_job(run)
    [draft] = list(Path(paused.cache_dir).glob(f"{run.removeprefix('job_')}-1.json"))
    assert "Dora Vik" in draft.read_text()
    monkeypatch.setenv("EDITOR", write_editor(paused, "assert 'Dora Vik' in text; text = text.rstrip()[:-1]"))
    jobs.edit_job(run)
    assert not draft.exists()
    assert shown_state(paused, run)["findings"][0]["answer"] == "Dora Vik"
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    with pytest.raises(CallerError, match="set EDITOR, or give a FILE"):
        jobs.edit_job(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nope"), "No job 'nope' is known"),
        (("edit", "RUN", "--at", "9", "-"), "has no step 9; its steps are 1 to 1"),
        (("edit", "RUN", "missing.json"), "cannot be read from missing.json"),
        (("edit", "RUN"), "There is no terminal to edit on"),
        (("fork", "RUN", "-"), "this is no JSON"),
    ],
)
def test_what_cannot_be_done_with_a_run_is_said(paused: Stage, arguments: tuple[str, ...], message: str) -> None:
    run = paused_run(paused)
    result = paused.jobs(*[run if argument == "RUN" else argument for argument in arguments])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pause-before", "colapse"), "no step 'colapse'; its steps are collapse, reduce"),
        (("--pause-before", "reduce", "--fresh"), "With --fresh nothing is kept"),
    ],
)
def test_a_pause_that_cannot_be_is_refused_before_an_engine_starts(
    paused: Stage, arguments: tuple[str, ...], message: str
) -> None:
    result = paused.run(str(paused.document), *ASKED, *arguments)
    assert (result.exit_code, paused.opened) == (2, 0)
    assert message in result.stderr


def test_a_step_that_the_run_does_not_come_to_is_told_of(paused: Stage) -> None:
    result = paused.run(str(paused.document), *ASKED, "--pause-before", "collapse")
    assert (result.exit_code, "Answer: Anna Torv" in result.stdout) == (0, True)
    assert "The run did not pause: it came to no further step 'collapse'." in result.stderr


def test_a_document_on_standard_input_is_kept_with_its_paused_job(paused: Stage) -> None:
    text = paused.document.read_text()
    result = paused.run("-", *ASKED, "--pause-before", "reduce", "--json", stdin=text)
    run = json.loads(result.stdout)["paused"]["job"]
    assert "Answer: Anna Torv" in paused.jobs("resume", run).stdout


def test_a_job_goes_on_with_the_document_that_it_began_with(paused: Stage) -> None:
    run = paused_run(paused)
    paused.document.write_text("It was all different.")
    state = shown_state(paused, run)
    del state["findings"][0]
    assert edit(paused, run, state).exit_code == 0
    assert "Answer: Berta Lund" in paused.jobs("resume", run).stdout


def test_notes_are_shown_as_they_are(stage: Stage) -> None:
    stage.script = seeded_script(2)
    arguments = (str(stage.document), "-q", "Who?", "--strategy", "chain_of_agents", "--pause-before", "manager")
    result = stage.run(*arguments)
    assert result.exit_code == 6
    assert '"paths": [' in result.stdout


def test_a_state_cannot_upset_a_terminal_and_reads_back_as_it_was(stage: Stage) -> None:
    hostile = "turned \u202e round, \x9b31m red, \x7f gone"
    stage.document.write_text(fact_document({7: f"{FACT} {hostile}."}, paragraphs=30).text)
    facts = [(FACT, f"Anna {hostile}")]
    stage.script = reading_script(make_tokenizer(), facts)
    result = pause(stage)
    run = result.stdout.split()[-1]
    shown = stage.jobs("show", run, "--at", "1").stdout
    for output in (result.stdout, shown):
        assert not set("\u202e\x9b\x7f") & set(output)
    assert json.loads(shown)["findings"][0]["answer"] == f"Anna {hostile}"
    assert edit(stage, run, shown).exit_code == 0


def test_a_chunk_that_failed_may_be_read_when_the_run_goes_on(paused: Stage) -> None:
    reading = paused.script

    def failing(call: Any, times: int) -> Reply:
        if call.stage is CallStage.MAP and "Berta" in make_tokenizer().decode(call.prompt.token_ids):
            return Reply(text="babble")
        return reading(call, times)

    paused.script = failing
    run = paused_run(paused)
    paused.script = reading
    assert len(shown_state(paused, run)["findings"]) == 1
    assert "Answer: Anna Torv" in paused.jobs("resume", run).stdout


def test_a_paused_job_is_cancelled_and_an_ended_one_deleted_with_its_calls(paused: Stage) -> None:
    run = paused_run(paused)
    assert paused.jobs("delete", run).exit_code == 2, "it has not ended"
    assert paused.jobs("cancel", run).stdout == f"Job {run} is cancelled.\n"
    assert paused.jobs("delete", run).stdout == f"Job {run} is deleted.\n"
    assert paused.jobs("list").stdout == ""
    paused.run(str(paused.document), *ASKED)
    assert CallStage.MAP in stages(paused), "no other job had used its calls"


def test_jobs_of_the_api_are_listed_shown_forked_and_resumed_here(paused: Stage) -> None:
    from serving.jobs.job import JobRequest, Lane, NewJob
    from serving.jobs.run_here import open_store

    async def submit(**fields: Any) -> str:
        async with open_store(command_settings()) as store:
            ref = await store.files.add_text("team", paused.document.read_text(), "upload.txt")
            request = JobRequest(question="Who is the keeper?", strategy="mapreduce", documents=(ref,), **fields)
            new = NewJob(owner="team", key_id="", surface="job", lane=Lane.LONG, request=request)
            job, _ = await store.jobs.submit(new)
            await store.jobs.request_cancel(job.id, "team")
            return f"job_{job.id}"

    job = asyncio.run(submit())
    assert job in paused.jobs("list").stdout
    shown = paused.jobs("show", job).stdout
    assert "Document: upload.txt" in shown
    assert "Owner:    team" in shown
    result = paused.jobs("resume", job, "--pause-before", "reduce")
    assert result.exit_code == 6, result.output
    state = shown_state(paused, job)
    del state["findings"][0]
    fork = edit(paused, job, state, command="fork").stdout.splitlines()[0].split()[1].rstrip(",")
    assert "Answer: Berta Lund" in paused.jobs("resume", fork).stdout
    assert "Owner:    team" in paused.jobs("show", fork).stdout


def test_what_cannot_be_resumed_is_said(paused: Stage) -> None:
    assert "No unfinished job" in paused.jobs("resume").stderr
    paused.run(str(paused.document), *ASKED)
    run = paused.jobs("list").stdout.split()[0]
    result = paused.jobs("resume", run, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["type"]) == (2, "WrongState")
    assert "Removed 0 jobs" in paused.jobs("prune").stdout
