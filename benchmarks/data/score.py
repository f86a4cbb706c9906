"""Exact scoring: no model judges, so a score means the same on every machine and on every day."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from benchmarks.data.items import BenchItem
from benchmarks.data.patterns import holds, normalise
from pipeline.documents.document import Span

Verdict = Literal["right", "wrong", "abstained"]

ABSENT = "Not in the document."
"""A system that answers in prose is asked to write this where it found nothing; `score_prose` knows it."""

_ABSTAINS = re.compile(
    r"\b(?:not|never) (?:in document|in text|mentioned|stated|given|provided|specified|found|available|known)\b"
    r"|\b(?:does|do|did) not (?:say|tell|mention|state|give|provide|specify|contain|include)\b"
    r"|\b(?:no|without) (?:information|mention|answer|evidence)\b|\bnothing\b|没有(?:说明|提到|提及|给出)|未提及"
)
"""On a normalised text, which has no articles."""


def score_answer(item: BenchItem, answer_text: str, found: bool) -> Verdict:
    """Compare an answer with what the document states.

    "abstained": the answer says that the document does not say; for an absent fact that is "right".
    An answer is right if it holds an accepted form and no rejected one: naming every candidate does not pay.
    """
    if not found or not answer_text.strip():
        return "right" if item.kind == "absent" else "abstained"
    if item.kind == "absent":
        return "wrong"
    answer = normalise(answer_text)
    accepted = any(holds(answer, form) for form in item.accepted)
    return "right" if accepted and not any(holds(answer, form) for form in item.rejected) else "wrong"


def score_prose(item: BenchItem, text: str) -> Verdict:
    """Compare what any system wrote, of which only the words show whether it abstains.

    An answer that is held counts whatever is beside it; else the words of `_ABSTAINS` are an abstention.
    """
    verdict = score_answer(item, text, found=True)
    if verdict == "wrong" and _ABSTAINS.search(normalise(text)):
        return "right" if item.kind == "absent" else "abstained"
    return verdict


def states_answer(item: BenchItem, quoted: Iterable[Span]) -> bool | None:
    """Whether any quoted span overlaps a sentence that states the answer; None if no sentence does."""
    if not item.spans:
        return None
    quotes = list(quoted)
    return any(is_quoted(span, quotes) for span in item.spans)


def is_quoted(span: Span, quoted: Iterable[Span]) -> bool:
    """Whether any quoted span overlaps it."""
    return any(quote.start < span.end and span.start < quote.end for quote in quoted)
