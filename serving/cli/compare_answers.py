"""Several strategies on one question: what each came to, and how far their evidence is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.documents.document import Span
from pipeline.errors import LongfoldError
from pipeline.findings.answer import Answer
from pipeline.llm.model import Usage
from pipeline.run.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One strategy's share of a comparison. Without `error` it has a plan, and an answer once it was run."""

    strategy: str
    """As asked for; `plan.strategy` is what `auto` chose."""
    plan: Plan | None = None
    answer: Answer | None = None
    error: LongfoldError | None = None

    @property
    def title(self) -> str:
        chosen = self.plan.strategy if self.plan else self.strategy
        return self.strategy if chosen == self.strategy else f"{self.strategy} ({chosen})"

    @property
    def usage(self) -> Usage:
        """Of all stages together."""
        return sum(self.answer.usage.values(), Usage()) if self.answer else Usage()


def evidence_overlaps(answers: Sequence[Answer | None]) -> list[float | None]:
    """Of each answer, the share of its evidence's characters that the others' evidence covers too, 0 to 1.

    An answer's evidence covers the code points of the document that lie in the span of at least one of its quotes;
    each counts once, however many quotes hold it, and quotes without a place cover nothing. The share is how many of
    them lie in a span of at least one *other* answer, by how many there are. So it is not symmetric: a short quote
    inside a long one is shared wholly, the long one in part. None where an answer covers nothing, and where no other
    answer does: there is then nothing to share.
    """
    covered = [_joined(_spans(answer)) for answer in answers]
    overlaps: list[float | None] = []
    for place, own in enumerate(covered):
        others = _joined(span for other in (*covered[:place], *covered[place + 1 :]) for span in other)
        overlaps.append(_common_chars(own, others) / sum(map(len, own)) if own and others else None)
    return overlaps


def exit_code_of_all(codes: Sequence[int]) -> int:
    """0 if one strategy could answer, else the code of the first that could not."""
    return 0 if 0 in codes or not codes else codes[0]


def _spans(answer: Answer | None) -> list[Span]:
    return [evidence.span for evidence in answer.evidence if evidence.span] if answer else []


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same code points as ascending spans of which no two touch."""
    joined: list[Span] = []
    for span in sorted(span for span in spans if len(span)):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _common_chars(first: Sequence[Span], second: Sequence[Span]) -> int:
    """Both ascending and free of overlap."""
    return sum(max(0, min(one.end, other.end) - max(one.start, other.start)) for one in first for other in second)
