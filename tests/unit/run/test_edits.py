"""A run's state as JSON: whatever is written reads back as it was, with every quote where it stands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.errors import StateInvalid
from pipeline.findings.finding import Alignment, Evidence, Finding, Findings
from pipeline.llm.scripted import ScriptedModel, seeded_script
from pipeline.run.edits import parts, read_state, write_state
from pipeline.run.request import Request
from pipeline.run.run import Run, begin_run
from pipeline.strategies.chain_of_agents.workers import Units
from pipeline.strategies.lc_boost.strategy import Walk
from pipeline.strategies.longagent.leader import Round, Talk
from pipeline.strategies.map_rerank import Ranking, Scored
from pipeline.strategies.refine import SoFar
from pipeline.strategies.shared.notes import Notes
from pipeline.strategies.summarize.collapse import Summaries, Summary
from tests.factories import fact_document, make_resources, make_tokenizer

CHUNKS = 6


def make_run() -> Run:
    """Each chunk holds sentences that stand nowhere else."""
    document = fact_document({n: f"Fact number {n} is this one." for n in range(12)}, paragraphs=12)
    resources = make_resources(dispatcher=InlineDispatcher(ScriptedModel(seeded_script(1))), chunk_tokens=700)
    run = begin_run(document, Request(question="What?"), resources)
    run.split(4000)
    assert len(run.chunks) >= CHUNKS
    return run


RUN = make_run()
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
CHUNK = st.integers(0, CHUNKS - 1)


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    chunk = RUN.chunks[draw(CHUNK)]
    span = draw(st.sampled_from([s.span for s in chunk.sentences]))
    text = RUN.document.slice(span)
    start = span.start + len(text) - len(text.lstrip())
    kept = replace(span, start=start, end=start + len(text.strip()))
    return Evidence(
        quote=text.strip(), chunk_index=chunk.index, span=kept, alignment=draw(st.sampled_from(list(Alignment)[:4]))
    )


FINDING = st.builds(
    Finding,
    chunk_indices=st.sets(CHUNK, min_size=1).map(lambda indices: tuple(sorted(indices))),
    evidence=st.lists(evidence(), max_size=3).map(tuple),
    rationale=TEXT,
    answer=TEXT.map(str.strip).filter(bool),
    stated_confidence=st.integers(1, 5),
    gate_score=st.none() | st.floats(-9, 9),
    probability=st.floats(0, 1),
)
NOTES = st.builds(Notes, text=TEXT, evidence=st.dictionaries(CHUNK, st.lists(evidence(), max_size=2).map(tuple)))
ROUND = st.builds(
    Round, instruction=TEXT, said=st.dictionaries(CHUNK, FINDING), pairs_asked=st.sets(st.tuples(CHUNK, CHUNK))
)
SUMMARY = st.builds(
    Summary,
    token_ids=TEXT.map(make_tokenizer().encode_content),
    chunk_indices=st.lists(CHUNK).map(tuple),
    evidence=st.lists(evidence(), max_size=2).map(tuple),
    truncated=st.booleans(),
)
STATE = st.one_of(
    st.builds(Findings, findings=st.lists(FINDING, max_size=4).map(tuple)),
    st.builds(SoFar, answer=st.none() | FINDING),
    st.builds(Ranking, said=st.lists(st.builds(Scored, score=st.integers(0, 100), finding=FINDING)).map(tuple)),
    st.builds(Units, paths=st.lists(NOTES, max_size=2).map(tuple)),
    st.builds(Talk, instruction=TEXT, rounds=st.lists(ROUND, max_size=2), merges_made=st.integers(0, 9)),
    st.builds(
        Walk,
        everything=st.booleans(),
        notes=NOTES,
        cursor=st.none() | CHUNK,
        ranking=st.lists(CHUNK),
        visited=st.sets(CHUNK),
        done=st.sets(TEXT),
    ),
    st.builds(Summaries, summaries=st.lists(SUMMARY, max_size=3).map(tuple)),
)
EMPTY: dict[type, Any] = {
    Findings: Findings(findings=()),
    SoFar: SoFar(answer=None),
    Ranking: Ranking(said=()),
    Units: Units(paths=()),
    Talk: Talk(instruction=""),
    Walk: Walk(everything=False, cursor=None, ranking=[]),
    Summaries: Summaries(summaries=()),
}


@settings(max_examples=150, deadline=None)
@given(STATE)
def test_a_state_written_by_hand_reads_back_with_all_that_a_person_can_state(state: Any) -> None:
    """Against an empty state, so that nothing is taken from it."""
    read = read_state(write_state(state, RUN.tokenizer), EMPTY[type(state)], RUN.state_context)
    assert write_state(read, RUN.tokenizer) == write_state(state, RUN.tokenizer)
    assert [type(part) for part in parts(read)] == [type(part) for part in parts(state)]
    for part in parts(read):
        if isinstance(part, Evidence):
            assert part.span is not None
            assert RUN.document.slice(part.span) == part.quote
        if isinstance(part, Finding):
            assert part.evidence or part.probability <= RUN.calibration.unlocated_cap


@settings(max_examples=60, deadline=None)
@given(state=STATE, space=st.sampled_from([None, 0, 2]))
def test_a_state_read_against_itself_is_itself_with_what_no_person_states(state: Any, space: int | None) -> None:
    text = json.dumps(json.loads(write_state(state, RUN.tokenizer)), indent=space)
    assert read_state(text, state, RUN.state_context) == state


@settings(max_examples=60, deadline=None)
@given(st.lists(FINDING, min_size=1, max_size=4, unique_by=lambda finding: write_state(finding, RUN.tokenizer)))
def test_only_the_changed_finding_is_judged_anew(findings: list[Finding]) -> None:
    original = Findings(findings=tuple(findings))
    state = json.loads(write_state(original, RUN.tokenizer))
    state["findings"][0]["answer"] += " indeed"
    read = read_state(json.dumps(state), original, RUN.state_context)
    assert read.findings[1:] == original.findings[1:]
    changed = read.findings[0]
    assert [quote.quote for quote in changed.evidence] == [quote.quote for quote in findings[0].evidence]
    assert (changed.gate_score, changed.support_score) == (None, None)
    assert changed.probability == RUN.judge(replace(findings[0], gate_score=None)).probability


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
    )
)
def test_whatever_else_is_written_is_refused_as_it_should_be(value: Any) -> None:
    for state in EMPTY.values():
        with pytest.raises(StateInvalid, match="the state"):
            read_state(json.dumps(value), state, RUN.state_context)


def test_a_quote_that_stands_in_another_chunk_than_it_says_is_found_there() -> None:
    text = '{"findings": [{"answer": "9", "evidence": [{"quote": "Fact number 9 is this one.", "chunk_index": 0}]}]}'
    read = read_state(text, EMPTY[Findings], RUN.state_context)
    [found] = read.findings[0].evidence
    assert found.chunk_index == read.findings[0].chunk_indices[0] > 0


def test_an_answer_to_a_choice_is_one_of_its_letters() -> None:
    request = replace(RUN.request, choices=("red", "blue"))
    text = '{"findings": [{"answer": "red", "chunk_indices": [0]}]}'
    with pytest.raises(StateInvalid, match=r"findings\[0\]\.answer is none of the options A, B"):
        read_state(text, EMPTY[Findings], replace(RUN, request=request).state_context)
