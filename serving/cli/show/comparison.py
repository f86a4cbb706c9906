"""A comparison of strategies as plain lines for people, and as one object for machines; likewise their prices."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.documents.document import Document
from pipeline.errors import LongfoldError
from pipeline.findings.answer import Answer
from pipeline.run.answer_json import answer_record, error_record
from pipeline.run.plan import Plan
from pipeline.text import duration
from serving.cli.compare_answers import Attempt, evidence_overlaps
from serving.cli.show.answer import printable

Seconds = Callable[[Plan], tuple[float | None, float | None]]
"""Least and most that a plan may take, None where this machine was never measured."""

_INDENT = "    "
_WIDTH = 110
_FIGURES = {
    "found": 8,
    "confidence": 12,
    "coverage": 10,
    "calls": 8,
    "journal": 9,
    "in": 11,
    "cached": 11,
    "out": 9,
    "depth": 7,
    "time": 10,
    "shared": 8,
}
"""Titles and widths of the columns."""
_PRICES = {"chunks": 8, "calls": 9, "in": 13, "out": 11, "depth": 7, "time": 14}
_LEGEND = (
    "in, cached, out: tokens. depth: calls one after another, at most. shared: characters of its evidence that the "
    "evidence of the others covers too."
)


def comparison_lines(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Two lines or more for each strategy: its figures and its answer, or why there is none."""
    overlaps = evidence_overlaps([attempt.answer for attempt in attempts])
    first = _first_width(attempts)
    yield _row("strategy", first, _FIGURES, _FIGURES)
    for attempt, overlap in zip(attempts, overlaps, strict=True):
        if attempt.answer is None:
            yield attempt.title
            yield from _indented(_reason(attempt.error))
        else:
            yield _row(attempt.title, first, _FIGURES, _figures(attempt, attempt.answer, overlap))
            yield from _indented(_answer_text(attempt.answer))
    yield ""
    yield from textwrap.wrap(_LEGEND, _WIDTH)
    if any(attempt.usage.journal_calls for attempt in attempts):
        yield "Calls from the journal cost nothing, so such a row is no measure of its strategy; --fresh pays for all."


def comparison_records(attempts: Sequence[Attempt], document: Document) -> list[dict[str, Any]]:
    """One object for each strategy: what `ask --json` says of its answer, its plan and its sums, or its error."""
    overlaps = evidence_overlaps([attempt.answer for attempt in attempts])
    records = []
    for attempt, overlap in zip(attempts, overlaps, strict=True):
        record: dict[str, Any] = {"strategy": attempt.strategy}
        record |= {"plan": asdict(attempt.plan)} if attempt.plan else {}
        record |= error_record(attempt.error) if attempt.error else {}
        if attempt.answer is not None:
            record |= answer_record(attempt.answer, document) | {"total_usage": asdict(attempt.usage)}
            record |= {"evidence_overlap": None if overlap is None else round(overlap, 4)}
        records.append(record)
    return records


def price_lines(attempts: Sequence[Attempt], seconds: Seconds) -> Iterator[str]:
    """What each strategy takes at most, known before any call."""
    first = _first_width(attempts)
    yield _row("strategy", first, _PRICES, _PRICES)
    for attempt in attempts:
        plan = attempt.plan
        if plan is None:
            yield attempt.title
            yield from _indented(_reason(attempt.error))
            continue
        _, max_s = seconds(plan)
        counts = (plan.chunks, plan.calls, plan.prompt_tokens, plan.output_tokens, plan.depth)
        time = "not measured" if max_s is None else duration(max_s)
        yield _row(attempt.title, first, _PRICES, [*(f"{count:,}" for count in counts), time])
    yield ""
    yield "in, out: tokens. All figures are bounds: what the document decides on the way can only lower them."


def price_records(attempts: Sequence[Attempt], seconds: Seconds) -> list[dict[str, Any]]:
    records = []
    for attempt in attempts:
        record: dict[str, Any] = {"strategy": attempt.strategy}
        record |= error_record(attempt.error) if attempt.error else {}
        if attempt.plan is not None:
            low_s, high_s = seconds(attempt.plan)
            record |= {"plan": asdict(attempt.plan), "seconds_low": low_s, "seconds_high": high_s}
        records.append(record)
    return records


def _figures(attempt: Attempt, answer: Answer, overlap: float | None) -> list[str]:
    used = attempt.usage
    counts = (used.calls, used.journal_calls, used.prompt_tokens, used.cached_tokens, used.output_tokens)
    return [
        "yes" if answer.found else "no",
        f"{answer.confidence} ({answer.probability:.0%})" if answer.found else "-",
        f"{answer.coverage.share:.0%}",
        *(f"{count:,}" for count in counts),
        str(attempt.plan.depth) if attempt.plan else "-",
        duration(answer.total_seconds),
        "-" if overlap is None else f"{overlap:.0%}",
    ]


def _answer_text(answer: Answer) -> str:
    if answer.coverage.nothing_read:
        return f"Nothing could be read: {answer.coverage.failed_chunks[0].message}"
    return answer.text if answer.found else "The document does not say."


def _reason(error: LongfoldError | None) -> str:
    return "It was not finished." if error is None else f"{type(error).__name__}: {error}"


def _first_width(attempts: Sequence[Attempt]) -> int:
    return max(len(title) for title in ("strategy", *(attempt.title for attempt in attempts)))


def _row(title: str, first_width: int, widths: Mapping[str, int], cells: Iterable[str]) -> str:
    return f"{title:<{first_width}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(cells, widths.values(), strict=True)
    )


def _indented(text: str) -> Iterator[str]:
    for line in printable(text).splitlines():
        yield from textwrap.wrap(line, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT) or [""]
