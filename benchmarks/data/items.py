"""One question on one document, and where its answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.documents.document import Span

Kind = Literal["lookup", "absent", "two_hop", "conflict", "aggregation"]
KINDS: tuple[Kind, ...] = ("lookup", "two_hop", "conflict", "aggregation", "absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchItem:
    """One question on one document."""

    id: str
    question: str
    kind: Kind
    accepted: tuple[str, ...]
    """Any of them in the answer makes it right; see `patterns.REGEX`. Empty for an absent fact."""
    rejected: tuple[str, ...]
    """Any of them in the answer makes it wrong: values of distractors, hearsay, superseded statements."""
    spans: tuple[Span, ...]
    """Each sentence that states the answer or a part of it; empty for an absent fact."""
    link_spans: tuple[Span, ...] = ()
    """Of a two-hop question: the sentence that leads to the entity."""
    conflict_spans: tuple[Span, ...] = ()
    """Sentences that say something else with less support."""
    language: str
    seed: int
    from_real_text: bool = False
    """True if the haystack itself states the answer, which may then occur elsewhere in another sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDocument:
    """One text and the questions on it."""

    name: str
    text: str
    items: tuple[BenchItem, ...]
    language: str
    synthetic: bool
    """True if the haystack is generated too, because no Python installation has such text."""


def document_of(item_id: str) -> str:
    """The name that the items of one document share: their ids are that and a number."""
    return item_id.rpartition("-")[0]
