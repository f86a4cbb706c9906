"""What the gate keeps, and the order in which chunks are sent."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from pipeline.chunks.rank import best_first, score_words
from pipeline.chunks.split import split_document
from pipeline.documents.document import Document
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.mapreduce.gate import GatePass, keep_chunks
from tests.factories import fact_document, make_tokenizer

SCORES = st.dictionaries(st.integers(0, 50), st.floats(-20, 20), max_size=40)


@given(SCORES, st.floats(-50, 50))
def test_the_level_of_the_scores_does_not_matter(scores: dict[int, float], shift: float) -> None:
    settings = GateSettings(enabled=True, keep_margin=3.1234, keep_at_least=3)
    rounded = {index: round(score, 3) for index, score in scores.items()}
    shifted = {index: score + round(shift, 3) for index, score in rounded.items()}
    assert set(keep_chunks(rounded, settings)) == set(keep_chunks(shifted, settings))


@given(SCORES, st.integers(0, 10))
def test_the_best_few_are_always_kept_best_first(scores: dict[int, float], at_least: int) -> None:
    kept = keep_chunks(scores, GateSettings(enabled=True, keep_margin=0.0, keep_at_least=at_least))
    assert len(kept) >= min(at_least, len(scores))
    assert [scores[i] for i in kept] == sorted((scores[i] for i in kept), reverse=True)


def test_chunks_that_share_the_questions_words_go_first() -> None:
    document = fact_document({9: "The notary Quillon signed the deed."})
    chunks = split_document(document, make_tokenizer(), 600)
    order = best_first(score_words(document, chunks, "Which notary signed the deed?"))
    assert sorted(order) == list(range(len(chunks)))
    assert "notary" in document.slice(chunks[order[0]].span)


def test_without_a_shared_word_the_order_is_the_documents() -> None:
    document = fact_document({})
    chunks = split_document(document, make_tokenizer(), 600)
    assert best_first(score_words(document, chunks, "Zzyzx?")) == list(range(len(chunks)))


def test_text_without_spaces_is_ranked_too() -> None:
    filler = "港口很安静，船都停着。" * 40
    document = Document.from_text("\n\n".join([filler, filler + "灯塔看守人名叫欧达莉。", filler]))
    chunks = split_document(document, make_tokenizer(), 1500)
    best = best_first(score_words(document, chunks, "灯塔看守人叫什么名字？"))[0]
    assert "灯塔" in document.slice(chunks[best].span)


@given(st.floats(-30, 30), st.floats(-30, 30), st.integers(1, 5))
def test_more_support_never_lowers_the_probability(gate: float, support: float, words: int) -> None:
    calibration = Calibration()
    low = calibration.probability(gate=gate, support=support, words=words)
    high = calibration.probability(gate=gate, support=support + 1, words=words)
    assert 0 <= low <= high <= 1


def test_without_any_score_a_fitted_intercept_does_not_speak() -> None:
    fitted = Calibration(intercept=-3.9, gate=0.7, support=0.8, words=0.4)
    assert fitted.probability(gate=None, support=None, words=5) == Calibration().probability(
        gate=None, support=None, words=5
    )
    assert fitted.probability(gate=None, support=None, words=5) > 0.7
    assert fitted.probability(gate=0.0, support=None, words=5) < 0.1


def test_a_task_may_have_an_intercept_of_its_own() -> None:
    calibration = Calibration(intercept=-1.0, task_intercepts={"question_answering_zh": -3.0})
    own, other = calibration.for_task("question_answering_zh"), calibration.for_task("question_answering")
    assert own.probability(gate=1, support=1, words=5) < other.probability(gate=1, support=1, words=5)
    assert other == calibration


@given(
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=12),
    st.integers(0, 4),
    st.randoms(use_true_random=False),
)
def test_what_passes_does_not_depend_on_when_scores_come(
    scores: list[int | None], at_least: int, source: random.Random
) -> None:
    """None: the gate call failed."""
    settings = GateSettings(enabled=True, keep_margin=3.0, keep_at_least=at_least, clear_score=5.0)
    order = list(range(len(scores)))

    async def passing(arrival: list[int]) -> list[bool]:
        gate = GatePass(order, settings)
        kept = {}
        for index in arrival:
            score = scores[index]
            kept[index] = gate.add(index, score) if score is not None else gate.add_unscored(index, may_pass=True)
        assert gate.passed == sum(one.result() for one in kept.values())
        return [kept[index].result() for index in order]

    arrival = order.copy()
    source.shuffle(arrival)
    in_order = asyncio.run(passing(order))
    assert asyncio.run(passing(arrival)) == in_order
    best = keep_chunks({index: score for index, score in enumerate(scores) if score is not None}, settings)
    assert all(in_order[index] for index in best)
    assert all(in_order[index] for index, score in enumerate(scores) if score is None)


async def test_a_clear_score_passes_before_the_others_are_in() -> None:
    gate = GatePass([2, 0, 1], GateSettings(enabled=True, keep_margin=1.0, keep_at_least=1, clear_score=5.0))
    clear = gate.add(2, 6.0)
    assert clear.done()
    assert clear.result()
    assert not gate.add(0, 5.5).done(), "as many as are kept in any case"
    kept_back = gate.add_unscored(1, may_pass=False)
    assert not kept_back.result()
