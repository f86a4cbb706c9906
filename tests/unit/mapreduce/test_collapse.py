"""Collapse shrinks, keeps document order, starts early, and carries evidence untouched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import InternalError
from pipeline.findings.finding import Finding
from pipeline.findings.render import RENDERED_TOKENS, render_finding
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply
from pipeline.mapreduce.collapse import collapse_findings
from pipeline.text import same_answer
from tests.factories import make_call, make_collapse, make_finding, make_tokenizer


def merging(call: Call, times: int) -> Reply:
    return Reply(text=json.dumps({"findings": [1], "rationale": "merged", "answer": "both", "confidence": 4}))


async def stream(findings: Iterable[Finding]) -> AsyncIterator[Finding]:
    for item in findings:
        await asyncio.sleep(0)
        yield item


async def test_findings_that_fit_are_left_alone() -> None:
    collapse, model = make_collapse(merging, 3)
    findings = [make_finding(i) for i in range(3)]
    assert await collapse_findings(stream(findings), collapse) == findings
    assert model.calls == []


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 150))
def test_the_result_fits_and_covers_every_chunk_in_order(count: int) -> None:
    collapse, _ = make_collapse(merging, count)
    result = asyncio.run(collapse_findings(stream(make_finding(i) for i in range(count)), collapse))
    assert sum(collapse.size_tokens(f) for f in result) <= collapse.reduce_room_tokens()
    assert [index for f in result for index in f.chunk_indices] == list(range(count))


async def test_a_group_starts_while_later_findings_are_still_to_come() -> None:
    collapse, model = make_collapse(merging, 60)
    started_before_end: list[bool] = []

    async def slow() -> AsyncIterator[Finding]:
        for i in range(60):
            for _ in range(5):
                await asyncio.sleep(0)
            yield make_finding(i)
        started_before_end.append(bool(model.calls))

    await collapse_findings(slow(), collapse)
    assert started_before_end == [True]


async def test_a_failed_group_is_stood_in_for_by_its_best_finding_and_counted() -> None:
    collapse, _ = make_collapse(lambda call, times: Reply(error=InternalError("poison")), 60)
    findings = [make_finding(i, probability=i / 100) for i in range(60)]
    result = await collapse_findings(stream(findings), collapse)
    assert all(f in findings for f in result)
    assert collapse.dropped == 60 - len(result)
    assert collapse.failed


async def test_a_merge_cannot_lose_everything() -> None:
    collapse, _ = make_collapse(
        lambda call, times: Reply(text='{"findings":[],"rationale":"","answer":"","confidence":1}'), 60
    )
    assert await collapse_findings(stream(make_finding(i) for i in range(60)), collapse)


async def test_evidence_passes_beside_the_prompt_unchanged() -> None:
    collapse, _ = make_collapse(merging, 60)
    result = await collapse_findings(stream(make_finding(i) for i in range(60)), collapse)
    for merged in result:
        assert all(e.quote == f"quote {e.chunk_index}" for e in merged.evidence)


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_a_rendered_finding_has_a_proven_size(answer: str, rationale: str) -> None:
    long = Finding(
        chunk_indices=tuple(range(100)),
        evidence=make_finding(1).evidence * 8,
        rationale=rationale,
        answer=answer,
        stated_confidence=5,
    )
    assert len(render_finding(long, 9999, 100000, make_tokenizer())) <= RENDERED_TOKENS


def test_answers_are_compared_without_their_dress() -> None:
    assert same_answer("The Python 3.6.", "python 3.6")
    assert same_answer("3.6", "Python 3.6")
    assert not same_answer("3.6", "3.61")
    assert not same_answer("", "anything")


def test_an_operator_is_the_same_answer_as_itself() -> None:
    assert same_answer("!=", " != ")
    assert not same_answer("!=", "==")


def test_a_letter_is_the_same_answer_as_itself_though_it_reads_like_an_article() -> None:
    assert same_answer("A", "A")
    assert not same_answer("A", "B")


def test_what_stands_nearest_to_an_answer_goes_first() -> None:
    order = sorted(Stage, key=lambda stage: make_call(stage=stage).priority)
    assert order[-2:] == [Stage.MAP, Stage.GATE]
    assert order.index(Stage.REDUCE) < order.index(Stage.COLLAPSE) < order.index(Stage.MAP)
