"""The result of a run, with what it rests on and what was not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.documents.document import Span
from pipeline.findings.evidence import MAX_EVIDENCE, merge_evidence
from pipeline.findings.finding import Evidence, Finding
from pipeline.llm.model import Stage, Usage
from pipeline.text import same_answer

CONFLICT_PROBABILITY = 0.5
"""A finding that says something else is shown as a conflict from this probability on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedChunk:
    """A chunk that was not read because its call failed."""

    index: int
    span: Span
    stage: Stage
    error: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the document the answer rests on. Each chunk is counted once: read, unread or failed."""

    chunks: int
    chunks_read: int
    """Gated or mapped with success."""
    chunks_extracted: int
    """Of those read, how many were read for findings and not only gated."""
    failed_chunks: tuple[FailedChunk, ...] = ()
    findings_dropped: int = 0
    """Findings left out because a collapse round could not shrink them."""
    document_tokens: int = 0
    """Known where `tokens_left_out` is."""
    tokens_left_out: int = 0
    """Tokens of the document that no chunk holds, because it was cut to fit."""

    @property
    def share(self) -> float:
        """Part of the document that was read, 0 to 1."""
        kept = 1 - self.tokens_left_out / self.document_tokens if self.tokens_left_out else 1.0
        return kept * self.chunks_read / self.chunks if self.chunks else 1.0

    @property
    def nothing_read(self) -> bool:
        """True if every chunk failed: the answer then says nothing about the document."""
        return bool(self.failed_chunks) and not self.chunks_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `found` is False if the document does not say; `text` is then empty."""

    text: str
    """The short answer: a name, a number, a letter, a sentence; for a summary the summary."""
    explanation: str
    found: bool
    confidence: int
    """1 to 5, from `probability` in fifths; the two are calibrated, not what the model said of itself."""
    probability: float
    evidence: tuple[Evidence, ...]
    """In document order. Quotes of the findings that the answer was made from."""
    conflicts: tuple[Finding, ...] = ()
    """Supported findings that say something else."""
    coverage: Coverage
    made_from: tuple[Span, ...] = ()
    """What the text was made from where no quote can stand for it, as in a summary; in document order."""
    usage: Mapping[Stage, Usage] = field(default_factory=dict)
    seconds: Mapping[Stage, float] = field(default_factory=dict)
    """From the first call of a stage to its last outcome; stages overlap, so they do not add up to the whole."""
    total_seconds: float = 0.0
    provisional: bool = False
    stopped_by: str = ""
    """The limit that ended reading early ("calls", "tokens", "wall time"), or empty."""
    warnings: tuple[str, ...] = ()


def confidence_of(probability: float) -> int:
    """Fifths of the probability: 1 is under 0.2, 5 is 0.8 or more."""
    return min(5, 1 + int(probability * 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What the findings come to; becomes an `Answer` with what the run knows of coverage and usage."""

    text: str
    explanation: str
    probability: float
    evidence: tuple[Evidence, ...]
    conflicts: tuple[Finding, ...] = ()
    warning: str = ""

    @property
    def confidence(self) -> int:
        return confidence_of(self.probability)


NOTHING = Conclusion(text="", explanation="", probability=0.0, evidence=())


def conclude_from_one(
    finding: Finding, others: Sequence[Finding] = (), warning: str = "", rivals: Sequence[Finding] = ()
) -> Conclusion:
    """A single finding needs no further call. The `rivals` that it was preferred to are conflicts in any case."""
    return Conclusion(
        text=finding.answer,
        explanation=finding.rationale,
        probability=finding.probability,
        evidence=merge_evidence([finding], MAX_EVIDENCE),
        conflicts=tuple(one for one in others if one in rivals or speaks_against(one, finding.answer)),
        warning=warning,
    )


def conclude(
    text: str, explanation: str, named: Sequence[Finding], findings: Sequence[Finding], *, warning: str = ""
) -> Conclusion:
    """An answer made from the `named` of the `findings`; it is as probable as the best of those that agree with it."""
    agreeing = [finding for finding in named if same_answer(finding.answer, text)] or named
    return Conclusion(
        text=text,
        explanation=explanation,
        probability=max(finding.probability for finding in agreeing),
        evidence=merge_evidence(named, MAX_EVIDENCE),
        conflicts=tuple(finding for finding in findings if speaks_against(finding, text)),
        warning=warning,
    )


def speaks_against(finding: Finding, answer: str) -> bool:
    return finding.probability >= CONFLICT_PROBABILITY and not same_answer(finding.answer, answer)
