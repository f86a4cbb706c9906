"""Needles stand where they should, are checked by code, and are drawn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.data.needles import make_needle_document
from benchmarks.data.patterns import holds, normalise


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 3), depth=st.integers(0, 100), needles=st.integers(1, 4), repeat=st.integers(0, 2))
def test_each_needle_is_stated_at_its_place_and_nowhere_else(seed: int, depth: int, needles: int, repeat: int) -> None:
    made = make_needle_document(seed, 4_000, depth, needles, repeat)
    assert len(made.facts) == len(made.spans) == needles
    rest = made.text
    for span in sorted(made.spans, reverse=True):
        rest = rest[: span.start] + rest[span.end :]
    for forms, span in zip(made.facts, made.spans, strict=True):
        sentence = made.text[span.start : span.end]
        assert sentence.endswith(".")
        assert holds(normalise(sentence), forms[0])
        assert not any(holds(normalise(rest), form) for form in forms)
    assert made.spans == tuple(sorted(made.spans))


@pytest.mark.parametrize("depth", [0, 11, 50, 89, 100])
def test_the_first_needle_lies_at_its_depth(depth: int) -> None:
    made = make_needle_document(1, 30_000, depth, 1, 0)
    assert made.spans[0].start / len(made.text) == pytest.approx(depth / 100, abs=0.03)


def test_further_needles_lie_between_the_first_and_the_end() -> None:
    made = make_needle_document(1, 30_000, 40, 3, 0)
    places = [span.start / len(made.text) for span in made.spans]
    assert places == pytest.approx([0.4, 0.6, 0.8], abs=0.03)


def test_one_seed_gives_one_document() -> None:
    assert make_needle_document(1, 4_000, 50, 2, 0) == make_needle_document(1, 4_000, 50, 2, 0)
    assert make_needle_document(1, 4_000, 50, 2, 0).text != make_needle_document(1, 4_000, 50, 2, 1).text
