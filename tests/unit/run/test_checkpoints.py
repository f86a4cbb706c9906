"""Between the steps of a run: checkpoints, pause, resume, edit, fork, cap; the same for every strategy."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.errors import StateInvalid, TooManySteps, UnknownName
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Findings
from pipeline.front_door import ask
from pipeline.llm.model import Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel, seeded_script
from pipeline.run.checkpoints import Checkpoint, History, RunPaused, StepOptions
from pipeline.run.request import Request
from pipeline.run.state import RunState
from pipeline.strategies import STRATEGIES, find_strategy
from tests.factories import fact_document, make_resources, make_tokenizer, reading_script

SHORT, LONG = fact_document({}, paragraphs=4), fact_document({}, paragraphs=16)
FACTS = {2: "The keeper's name is Anna Torv.", 9: "Some say the keeper is Berta Lund.", 13: "The lamp burns whale oil."}
DOCUMENT = fact_document(FACTS, paragraphs=16)
READING = reading_script(make_tokenizer(), [(FACTS[2], "Anna Torv"), (FACTS[9], "Berta Lund")])
QUESTION = "Who is the keeper?"
CHOSEN = sorted(STRATEGIES.keys() - {"auto"})


class Desk:
    """Runs under ids on one journal, each time with a model that counts its calls, and what a person does to them."""

    def __init__(self, folder: Path, script: Script, *, chunk_tokens: int = 600, context_tokens: int = 8192) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.sqlite")
        self.script = script
        self.sizes = {"chunk_tokens": chunk_tokens, "context_tokens": context_tokens}
        self.model = ScriptedModel(script)
        self.steps: defaultdict[str, dict[int, Checkpoint]] = defaultdict(dict)
        self.looked_at: defaultdict[str, int] = defaultdict(int)

    async def ask(
        self,
        strategy: str,
        run_id: str = "run",
        document: Document = DOCUMENT,
        *,
        pause_before: str = "",
        max_steps: int | None = None,
    ) -> Answer:
        self.model = ScriptedModel(self.script)
        state = RunState()
        dispatcher = JournaledDispatcher(InlineDispatcher(self.model), self.journal, "scripted", run_id=run_id)
        edits = {number: step for number, step in self.steps[run_id].items() if step.edited is not None}
        history = History(run_id=run_id, looked_at=self.looked_at[run_id], edits=edits)
        steps = StepOptions(pause_before=pause_before, max_steps=max_steps, history=history)
        resources = replace(make_resources(dispatcher=dispatcher, emit=state.apply, **self.sizes), steps=steps)
        try:
            return await ask(document, Request(question=QUESTION, strategy=strategy), resources)
        except RunPaused as paused:
            self.steps[run_id][paused.checkpoint.number] = paused.checkpoint
            self.looked_at[run_id] = paused.checkpoint.number
            raise
        finally:
            self.steps[run_id] |= {
                n: replace(step, edited=edits[n].edited) if n in edits else step for n, step in state.steps.items()
            }

    async def pause(self, strategy: str, before: str, run_id: str = "run", document: Document = DOCUMENT) -> RunPaused:
        with pytest.raises(RunPaused) as paused:
            await self.ask(strategy, run_id, document, pause_before=before)
        return paused.value

    def edit(self, change: Callable[[Any], object], at: int = 1, run_id: str = "run", fork_id: str = "") -> None:
        """Change the state in place, as a person does in an editor."""
        state = json.loads(self.steps[run_id][at].state)
        change(state)
        self.write(json.dumps(state), at, run_id, fork_id)

    def write(self, text: str, at: int = 1, run_id: str = "run", fork_id: str = "") -> None:
        """What comes after an edit no longer holds."""
        kept = {number: step for number, step in self.steps[run_id].items() if number <= at}
        self.steps[fork_id or run_id] = kept | {at: replace(kept[at], edited=text)}
        self.looked_at[fork_id or run_id] = at

    def stages(self) -> list[Stage]:
        return [call.stage for call in self.model.calls]

    def checkpoints(self, run_id: str = "run") -> list[Checkpoint]:
        return [self.steps[run_id][number] for number in sorted(self.steps[run_id])]

    def names(self, run_id: str = "run") -> list[str]:
        checkpoints = self.checkpoints(run_id)
        assert [checkpoint.number for checkpoint in checkpoints] == list(range(1, len(checkpoints) + 1))
        return [checkpoint.name for checkpoint in checkpoints]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, READING)


def document_for(strategy: str) -> Document:
    return SHORT if strategy == "direct" else LONG


def essence(answer: Answer) -> object:
    return answer.text, answer.evidence, answer.conflicts, answer.coverage, answer.probability, answer.made_from


@pytest.mark.parametrize("strategy", CHOSEN)
async def test_a_run_paused_before_any_step_goes_on_to_the_same_answer_without_a_repeated_call(
    strategy: str, tmp_path: Path
) -> None:
    desk, document = Desk(tmp_path, seeded_script(3)), document_for(strategy)
    straight = await Desk(tmp_path / "straight", seeded_script(3)).ask(strategy, document=document)
    for step in find_strategy(strategy).steps:
        calls = 0
        try:
            await desk.ask(strategy, f"before {step}", document, pause_before=step)
        except RunPaused:
            calls = len(desk.model.calls)
        if calls:
            assert desk.names(f"before {step}")[-1] == step
        answer = await desk.ask(strategy, f"before {step}", document)
        assert essence(answer) == essence(straight)
        assert answer.warnings == straight.warnings
        assert calls + len(desk.model.calls) <= sum(usage.calls for usage in straight.usage.values())
    assert set(desk.names(f"before {step}")) <= set(find_strategy(strategy).steps)
    assert desk.names(f"before {step}"), "every strategy has a checkpoint"


@pytest.mark.parametrize("strategy", CHOSEN)
async def test_an_edit_that_changes_nothing_changes_nothing(strategy: str, tmp_path: Path) -> None:
    desk, document = Desk(tmp_path, seeded_script(3)), document_for(strategy)
    straight = await desk.ask(strategy, document=document)
    for checkpoint in desk.checkpoints("run"):
        spaced = json.dumps(json.loads(checkpoint.state), indent=1)
        desk.steps["run"][checkpoint.number] = replace(checkpoint, edited=spaced)
    answer = await desk.ask(strategy, document=document)
    assert desk.model.calls == []
    assert essence(answer) == essence(straight)
    steps = len(desk.names())
    assert len([warning for warning in answer.warnings if "edited manually" in warning]) == steps > 0


@pytest.mark.parametrize("strategy", CHOSEN)
async def test_the_cap_counts_every_step_of_every_strategy(strategy: str, tmp_path: Path) -> None:
    desk, document = Desk(tmp_path, seeded_script(3)), document_for(strategy)
    straight = await desk.ask(strategy, document=document)
    steps = len(desk.names())
    assert essence(await desk.ask(strategy, document=document, max_steps=steps)) == essence(straight)
    with pytest.raises(TooManySteps, match=f"may take {steps - 1} steps"):
        await desk.ask(strategy, document=document, max_steps=steps - 1)


async def test_a_run_that_took_too_many_steps_goes_on_with_a_higher_cap(desk: Desk) -> None:
    with pytest.raises(TooManySteps):
        await desk.ask("refine", max_steps=2)
    paid = len(desk.model.calls)
    answer = await desk.ask("refine")
    assert paid == 2
    assert len(desk.model.calls) == answer.coverage.chunks - paid


async def test_a_pause_before_the_reduce_shows_all_findings_and_asks_for_nothing_more(desk: Desk) -> None:
    paused = await desk.pause("mapreduce", "reduce")
    assert isinstance(paused.state, Findings)
    assert [finding.answer for finding in paused.state.findings] == ["Anna Torv", "Berta Lund"]
    assert Stage.REDUCE not in desk.stages()
    shown = json.loads(paused.checkpoint.state)["findings"]
    assert [finding["evidence"][0]["quote"] for finding in shown] == [FACTS[2], FACTS[9]]


async def test_a_pause_before_the_collapse_waits_for_every_finding_though_merging_begins_early_else(
    tmp_path: Path,
) -> None:
    facts = {n: f"Keeper number {n} was Anna{n} Torv." for n in range(16)}
    document = fact_document(facts, paragraphs=16)
    script = reading_script(make_tokenizer(), [(text, f"Anna{n} {'Torv ' * 40}") for n, text in facts.items()])
    # Best first, so the last chunk to be sent is not the last in the document.
    desk = Desk(tmp_path, script, context_tokens=4096)
    paused = await desk.pause("mapreduce", "collapse", document=document)
    assert isinstance(paused.state, Findings)
    assert [finding.chunk_indices[0] for finding in paused.state.findings] == list(range(len(paused.state.findings)))
    assert len(paused.state.findings) == 16
    assert Stage.COLLAPSE not in desk.stages()
    mapped = desk.stages().count(Stage.MAP)
    # Two of them are enough, says a person: they fit, and nothing is left to collapse.
    desk.edit(lambda state: state["findings"].__delitem__(slice(2, None)))
    await desk.ask("mapreduce", document=document)
    assert mapped == 16
    assert set(desk.stages()) == {Stage.REDUCE}


async def test_a_fork_with_another_finding_has_another_answer_and_no_call_of_the_map(desk: Desk) -> None:
    first = await desk.ask("mapreduce")
    desk.edit(lambda state: state["findings"].pop(0), fork_id="fork")
    forked = await desk.ask("mapreduce", "fork")
    assert (first.text, forked.text) == ("Anna Torv", "Berta Lund")
    assert set(desk.stages()) <= {Stage.REDUCE}
    assert "The state before step 1 (reduce) was edited manually." in forked.warnings
    assert essence(await desk.ask("mapreduce")) == essence(first), "the parent is as it was"


async def test_what_was_not_edited_keeps_its_probability_and_its_place(desk: Desk) -> None:
    paused = await desk.pause("mapreduce", "reduce")
    assert isinstance(paused.state, Findings)
    desk.edit(lambda state: state["findings"].append({"answer": "Carl Ost", "chunk_indices": [5]}))
    again = await desk.pause("mapreduce", "reduce", run_id="run2")
    desk.edit(lambda state: state["findings"].append({"answer": "Carl Ost", "chunk_indices": [5]}), run_id="run2")
    answer = await desk.ask("mapreduce", "run2")
    assert again.state == paused.state
    kept = {finding.answer: finding for finding in paused.state.findings}
    assert answer.text in kept
    assert answer.evidence[0] in [evidence for finding in kept.values() for evidence in finding.evidence]


async def test_a_quote_by_hand_is_located_and_one_that_stands_nowhere_is_refused(desk: Desk) -> None:
    await desk.pause("mapreduce", "reduce")

    def say(quote: object) -> None:
        desk.edit(
            lambda state: state.update(findings=[{"answer": "whale oil", "stated_confidence": 5, "evidence": [quote]}])
        )

    say("The lamp burns coal oil.")
    with pytest.raises(
        StateInvalid, match=r"the state\.findings\[0\]\.evidence\[0\]\.quote does not stand.*burns whale oil"
    ):
        await desk.ask("mapreduce")
    for written in ("The lamp burns whale oil.", {"quote": "The LAMP *burns* whale\noil.", "chunk_index": 0}):
        say(written)
        answer = await desk.ask("mapreduce")
        [evidence] = answer.evidence
        assert evidence.span is not None
        assert evidence.quote == DOCUMENT.slice(evidence.span)
        assert "whale oil" in evidence.quote
        assert answer.text == "whale oil"
        assert desk.model.calls == []


async def test_a_finding_by_hand_without_a_quote_is_hardly_believed(desk: Desk) -> None:
    await desk.pause("mapreduce", "reduce")
    desk.edit(lambda state: state.update(findings=[{"answer": "Carl", "stated_confidence": 5, "chunk_indices": [0]}]))
    answer = await desk.ask("mapreduce")
    assert answer.text == "Carl"
    assert answer.probability <= 0.2
    assert answer.evidence == ()


BROKEN = [
    (lambda state: state.update(findings={}), r"the state\.findings: a list in \[ \] is expected here, not \{\}"),
    (lambda state: state.pop("findings"), r"the state: 'findings' is missing"),
    (lambda state: state.update(answers=[]), r"the state: 'answers' is not known here; the fields are findings"),
    (lambda state: state["findings"][1].update(answer=3), r"findings\[1\]\.answer: a text in quotation marks"),
    (lambda state: state["findings"][1].update(answer=" "), r"findings\[1\]\.answer is empty; take the whole"),
    (lambda state: state["findings"][0].update(stated_confidence=6), r"stated_confidence: 6 is not in 1 to 5"),
    (lambda state: state["findings"][0].update(stated_confidence=True), r"a whole number is expected here, not true"),
    (lambda state: state["findings"][0].update(chunk_indices=[99]), r"chunk_indices\[0\]: 99 is not in 0 to"),
    (lambda state: state["findings"][0].update(chunk_indices=[]), r"chunk_indices: name the chunk"),
    (lambda state: state["findings"].append({"answer": "x"}), r"findings\[2\]\.chunk_indices: name the chunk"),
    (lambda state: state["findings"].append({}), r"findings\[2\]: 'answer' is missing"),
    (lambda state: state["findings"][0].update(evidence=[""]), r"evidence\[0\]\.quote does not stand"),
    (lambda state: state["findings"][0].update(probability=1), r"'probability' is not known here"),
    (lambda state: state["findings"][0].update(rationale="\ud83d"), r"rationale holds half of a character"),
    (lambda state: state["findings"][0].update(evidence=[{"quote": "\udc00"}]), r"quote holds half of a character"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[message[:30] for _, message in BROKEN])
async def test_a_broken_edit_says_what_is_wrong_where_and_loses_nothing(
    desk: Desk, change: Callable[[Any], object], message: str
) -> None:
    await desk.pause("mapreduce", "reduce")
    desk.edit(change)
    with pytest.raises(StateInvalid, match=message):
        await desk.ask("mapreduce")
    assert desk.model.calls == []
    desk.edit(lambda state: None)
    assert (await desk.ask("mapreduce")).text == "Anna Torv"


async def test_an_edit_that_is_no_json_says_where(desk: Desk) -> None:
    await desk.pause("mapreduce", "reduce")
    desk.write('{\n "findings": [\n')
    with pytest.raises(StateInvalid, match="Line 3, column 1: this is no JSON"):
        await desk.ask("mapreduce")


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000])
async def test_an_edit_that_python_cannot_read_is_refused(desk: Desk, text: str) -> None:
    await desk.pause("mapreduce", "reduce")
    desk.write(text)
    with pytest.raises(StateInvalid, match=r"cannot be read|no JSON"):
        await desk.ask("mapreduce")


async def test_more_findings_by_hand_than_fit_are_collapsed_first(desk: Desk) -> None:
    await desk.pause("mapreduce", "reduce")
    more = [{"answer": f"{n} {'keeper ' * 60}", "chunk_indices": [n % 10]} for n in range(40)]
    desk.edit(lambda state: state.update(findings=more))
    await desk.ask("mapreduce")
    assert Stage.COLLAPSE in desk.stages()
    assert desk.names()[:2] == ["reduce", "collapse"]


async def test_refine_pauses_before_every_chunk_in_its_turn(desk: Desk) -> None:
    chunks = (await Desk(desk.folder / "other", READING).ask("refine")).coverage.chunks
    for number in range(1, chunks + 1):
        paused = await desk.pause("refine", "refine")
        assert paused.checkpoint.number == number
        assert len(desk.model.calls) == (number > 1)
    await desk.ask("refine", pause_before="refine")
    assert len(desk.model.calls) == 1


async def test_an_answer_so_far_by_hand_is_what_the_next_chunk_is_shown(desk: Desk) -> None:
    await desk.pause("refine", "answer")
    last = len(desk.names())
    desk.edit(lambda state: state.update(answer={"answer": "Dora Vik", "evidence": [FACTS[2]]}), at=last - 1)
    await desk.ask("refine")
    [call] = desk.model.calls
    assert "Dora Vik" in make_tokenizer().decode(call.prompt.token_ids)


async def test_notes_by_hand_are_what_the_next_worker_is_handed(tmp_path: Path) -> None:
    def worker(call: Any, times: int) -> Reply:
        if call.stage is Stage.REDUCE:
            return Reply(text=json.dumps({"parts": [1], "explanation": "", "answer": "x", "confidence": 3}))
        return Reply(text=json.dumps({"sentences": [1], "unchanged": False, "notes": f"seen {call.chunk_index}"}))

    desk = Desk(tmp_path, worker, context_tokens=4096)
    paused = await desk.pause("chain_of_agents", "manager")
    last = paused.checkpoint.number
    assert last > 3
    assert f"seen {last - 2}" in paused.checkpoint.state
    desk.edit(lambda state: state["paths"][0].update(text="what a person knows"), at=last)
    await desk.ask("chain_of_agents")
    assert set(desk.stages()) == {Stage.REDUCE}
    assert "what a person knows" in make_tokenizer().decode(desk.model.calls[0].prompt.token_ids)


async def test_paths_meet_at_a_pause_and_wait_for_one_another_nowhere_else(tmp_path: Path) -> None:
    def worker(call: Any, times: int) -> Reply:
        text = {"sentences": [1], "unchanged": False, "notes": "notes", "parts": [1], "answer": "x", "confidence": 3}
        return Reply(text=json.dumps(text | {"explanation": ""}), delay_s=0.002 * (call.chunk_index or 0))

    delays_s = iter([0.3])
    desk = Desk(
        tmp_path, lambda call, times: replace(worker(call, times), delay_s=next(delays_s, 0.0)), context_tokens=4096
    )
    await desk.ask("chain_of_agents_both_ways")
    chunks = [call.chunk_index for call in desk.model.calls if call.stage is Stage.MAP]
    last = max(index for index in chunks if index is not None)
    # Forwards waits at chunk 0; backwards goes on meanwhile, down to chunk 0.
    assert chunks[: last + 2] == [0, *range(last, -1, -1)]
    desk = Desk(tmp_path / "paused", worker, context_tokens=4096)
    paused = await desk.pause("chain_of_agents_both_ways", "manager")
    assert len(json.loads(paused.checkpoint.state)["paths"]) == 2
    assert Stage.REDUCE not in desk.stages()
    desk.edit(lambda state: state["paths"].pop(), at=paused.checkpoint.number)
    with pytest.raises(StateInvalid, match="2 are expected, there are 1"):
        await desk.ask("chain_of_agents_both_ways")


async def test_longagents_leader_decides_on_what_a_person_left_of_the_answers(tmp_path: Path) -> None:
    def talk(call: Any, times: int) -> Reply:
        text = make_tokenizer().decode(call.prompt.token_ids)
        if call.stage is Stage.REDUCE:
            answer = "Berta Lund" if "Anna" not in text else "Anna Torv"
            fields = {"instruction": "Find the keeper.", "reason": "", "members": [], "action": "ANSWER"}
            return Reply(text=json.dumps({**fields, "answer": answer}))
        answer = next((name for name in ("Anna Torv", "Berta Lund") if name in text), "")
        fields = {"sentences": [1], "found": bool(answer), "confidence": 4}
        return Reply(text=json.dumps({**fields, "answer": answer}))

    desk = Desk(tmp_path, talk)
    paused = await desk.pause("longagent", "leader")
    [round_] = json.loads(paused.checkpoint.state)["rounds"]
    assert sorted(finding["answer"] for finding in round_["said"].values()) == ["Anna Torv", "Berta Lund"]

    def drop_anna(state: Any) -> None:
        said = state["rounds"][0]["said"]
        state["rounds"][0]["said"] = {key: f for key, f in said.items() if f["answer"] != "Anna Torv"}

    assert (await desk.ask("longagent")).text == "Anna Torv"
    desk.edit(drop_anna, at=paused.checkpoint.number, fork_id="fork")
    answer = await desk.ask("longagent", "fork")
    assert answer.text == "Berta Lund"
    assert set(desk.stages()) == {Stage.REDUCE}


async def test_lc_boost_looks_where_a_person_sends_it(tmp_path: Path) -> None:
    def walk(call: Any, times: int) -> Reply:
        if call.stage is Stage.REDUCE and "places" in (call.sampling.json_schema or ""):
            return Reply(text=json.dumps({"places": "several", "queries": []}))
        text = {"sentences": [1], "reason": "", "action": "append", "query": "", "part": 1, "notes": "seen"}
        return Reply(text=json.dumps({**text, "answer": "", "confidence": 3, "parts": [1], "explanation": ""}))

    desk = Desk(tmp_path, walk)
    await desk.pause("lc_boost", "look")
    desk.edit(lambda state: state.update(cursor=2))
    await desk.pause("lc_boost", "look")
    assert [call.chunk_index for call in desk.model.calls if call.stage is Stage.MAP] == [2]
    checkpoint = desk.checkpoints("run")[1]
    assert json.loads(checkpoint.state)["visited"] == [2]


async def test_summaries_by_hand_are_what_the_last_one_is_made_from(tmp_path: Path) -> None:
    desk = Desk(tmp_path, seeded_script(5))
    await desk.pause("summarize", "reduce")
    last = len(desk.names())
    desk.edit(lambda state: state["summaries"][0].update(text="The ferry sank."), at=last)
    answer = await desk.ask("summarize")
    assert set(desk.stages()) == {Stage.REDUCE}
    assert "The ferry sank." in make_tokenizer().decode(desk.model.calls[0].prompt.token_ids)
    assert answer.coverage.chunks_read == answer.coverage.chunks


async def test_a_step_that_the_strategy_does_not_have_is_refused_before_a_call(desk: Desk) -> None:
    with pytest.raises(UnknownName, match="no step 'colapse'; its steps are collapse, reduce"):
        await desk.ask("mapreduce", pause_before="colapse")
    assert desk.model.calls == []


async def test_an_edit_at_a_step_that_the_run_no_longer_comes_to_is_refused(desk: Desk) -> None:
    await desk.pause("mapreduce", "reduce")
    [checkpoint] = desk.checkpoints("run")
    desk.steps["run"][1] = replace(checkpoint, name="collapse", edited=checkpoint.state)
    with pytest.raises(StateInvalid, match="edited as the one before 'collapse', but the run has come to 'reduce'"):
        await desk.ask("mapreduce")


async def test_a_chunk_that_could_be_read_after_the_edit_is_told_of(tmp_path: Path) -> None:
    desk = Desk(tmp_path, READING)
    broken = {"now": True}

    def failing(call: Any, times: int) -> Reply:
        if broken["now"] and call.stage is Stage.MAP and "Berta" in make_tokenizer().decode(call.prompt.token_ids):
            return Reply(error=StateInvalid("poison"))
        return READING(call, times)

    desk.script = failing
    paused = await desk.pause("mapreduce", "reduce")
    assert isinstance(paused.state, Findings)
    assert len(paused.state.findings) == 1
    desk.edit(lambda state: state["findings"][0].update(rationale="so it is"))
    broken["now"] = False
    answer = await desk.ask("mapreduce")
    assert any("another state than the one that was edited" in warning for warning in answer.warnings)


async def test_a_pause_without_a_journal_still_shows_the_state() -> None:
    resources = replace(make_resources(READING), steps=StepOptions(pause_before="reduce"))
    with pytest.raises(RunPaused) as paused:
        await ask(DOCUMENT, Request(question=QUESTION, strategy="mapreduce"), resources)
    assert paused.value.run_id == ""
    assert "Anna Torv" in paused.value.checkpoint.state
    await asyncio.sleep(0)
