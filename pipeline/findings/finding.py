"""What chunks say about a question, and where exactly they say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pipeline.documents.document import Span

CHUNK_INDEX = "index of a chunk"
ChunkIndex = Annotated[int, CHUNK_INDEX]
Confidence = Annotated[int, range(1, 6)]
"""What is read back from a person's hand is held to these (`run/edits.py`)."""


class Alignment(StrEnum):
    """How a quote was found in the document, from the surest to none."""

    POINTER = "pointer"
    """The model named a sentence by its number; code filled in the text. Exact by construction."""
    ANSWER = "answer"
    """The sentence of the chunk that holds the answer's words; found by code where the pointer missed it."""
    CLUE = "clue"
    """The sentence closest to the question's words; found by code, the first half of an answer in two places."""
    EXACT = "exact"
    NORMALISED = "normalised"
    """Equal after quotation marks, asterisks, white space and case are evened out."""
    FUZZY = "fuzzy"
    UNLOCATED = "unlocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A quote and its place. If `span` is set, `quote == document.text[span.start:span.end]`."""

    quote: str
    chunk_index: ChunkIndex
    span: Span | None
    alignment: Alignment
    similarity: float = 1.0
    """Of what the model wrote to what stands there, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What some chunks say about the question: the structured information protocol of LLM×MapReduce.

    A finding without an answer says that the chunks hold no information; it is dropped as data, never by its wording.
    """

    chunk_indices: tuple[ChunkIndex, ...]
    """Ascending. One after the map; several after a collapse."""
    evidence: tuple[Evidence, ...]
    rationale: str
    answer: str
    stated_confidence: Confidence
    """What the model said, 1 to 5; small models say 5 nearly always."""
    gate_score: float | None = None
    """Relevance of the chunk (`gate_chunks.relevance`), in nats; None if it was not gated."""
    support_score: float | None = None
    """log P(Yes) − log P(No) of the support check on the evidence alone; None if it was not checked."""
    probability: float = 0.0
    """That the answer is right and the evidence states it, 0 to 1, as calibrated from the three above."""
    truncated: bool = False
    """True if the model's output ended before its last field."""

    @property
    def is_empty(self) -> bool:
        return not self.answer

    @property
    def located_quotes(self) -> list[str]:
        """What stands in the document, of all that was named."""
        return [evidence.quote for evidence in self.evidence if evidence.span is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found, in document order: the state between two steps of a run."""

    findings: tuple[Finding, ...]
