"""Grouping and trimming: everything once, in order, within its room, and no lone last item."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.documents.document import Span
from pipeline.strategies.shared.grouping import balanced_groups, greedy_groups, worst_passes
from pipeline.strategies.summarize.collapse import Summary, trim
from pipeline.strategies.summarize.strategy import joined_spans


@pytest.mark.parametrize(
    ("items", "fan_in", "expected"), [(11, 10, [6, 5]), (7, 3, [2, 3, 2]), (5, 5, [5]), (0, 5, [])]
)
def test_groups_of_equal_items_are_even(items: int, fan_in: int, expected: list[int]) -> None:
    assert [len(group) for group in balanced_groups([10] * items, 10 * fan_in)] == expected


def test_published_groups_are_filled_one_after_another() -> None:
    assert [len(group) for group in greedy_groups([10] * 11, 100)] == [10, 1]
    assert [len(group) for group in greedy_groups([1, 9, 1, 20, 1], 10)] == [2, 1, 1, 1]


@given(st.lists(st.integers(1, 50)), st.integers(50, 300))
def test_balanced_groups_fit_and_are_as_few_as_can_be(sizes: list[int], room: int) -> None:
    groups = balanced_groups(sizes, room)
    assert [index for group in groups for index in group] == list(range(len(sizes)))
    assert all(0 < sum(sizes[index] for index in group) <= room for group in groups)
    assert len(groups) == len(greedy_groups(sizes, room))


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 30))
def test_equal_items_differ_by_one_at_most(items: int, size: int, fan_in: int) -> None:
    lengths = [len(group) for group in balanced_groups([size] * items, size * fan_in)]
    assert max(lengths) - min(lengths) <= 1


def summary(tokens: int, index: int) -> Summary:
    return Summary(token_ids=array("I", [1] * tokens), chunk_indices=(index,), evidence=())


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(60, 2000))
@example([1, 1, 1], 60)
def test_trimmed_summaries_fit_and_say_that_they_were_trimmed(sizes: list[int], room: int) -> None:
    summaries = [summary(tokens, index) for index, tokens in enumerate(sizes)]
    kept = trim(summaries, room, label_tokens=5)
    assert sum(len(one.token_ids) + 5 for one in kept) <= room
    assert all(one.truncated is (len(one.token_ids) < sizes[one.chunk_indices[0]]) for one in kept)
    if sum(sizes) + 5 * len(sizes) <= room:
        assert kept == summaries


def test_worst_passes_end_even_where_nothing_shrinks() -> None:
    assert worst_passes(100, 3, 100, limit=1000, room=1000, max_rounds=8) == []
    assert worst_passes(100, 14, 100, limit=1000, room=1000, max_rounds=8) == [2]
    assert worst_passes(100, 4, 100, limit=150, room=150, max_rounds=8) == [8]
    assert worst_passes(100, 4, 100, limit=150, room=150, max_rounds=8, retried=False) == [4] * 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=20))
def test_joined_spans_hold_the_same_text(gaps_and_lengths: list[tuple[int, int]]) -> None:
    spans, position = [], 0
    for gap, length in gaps_and_lengths:
        spans.append(Span(position + gap, position + gap + length))
        position += gap + length
    joined = joined_spans(spans)
    assert [p for span in joined for p in range(span.start, span.end)] == [
        p for span in spans for p in range(span.start, span.end)
    ]
    assert all(before.end < after.start for before, after in pairwise(joined))
