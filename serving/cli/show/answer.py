"""An answer, a plan and a table of usage as plain lines for people, and as one object for machines.

Document text may come from anywhere, so nothing reaches a terminal before `printable` has made control characters
visible: a quote must not move the cursor, colour the screen or reverse the reading direction.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from pipeline.documents.document import Document
from pipeline.findings.answer import Answer, Coverage
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.llm.model import Stage, Usage
from pipeline.run.plan import Plan
from pipeline.strategies import find_strategy
from pipeline.text import duration

_LONGEST_QUOTE_CHARS = 600
_VISIBLE = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
    | dict.fromkeys([*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
    | {ord("\r"): None}
)
_FOUND_AS = {
    Alignment.POINTER: "named by number",
    Alignment.ANSWER: "the sentence that holds the answer",
    Alignment.CLUE: "the sentence closest to the question",
    Alignment.EXACT: "copied exactly",
    Alignment.NORMALISED: "copied, but for punctuation or case",
    Alignment.FUZZY: "copied nearly",
    Alignment.UNLOCATED: "not found in the document",
}


def printable(text: str) -> str:
    """`text` with control characters made visible; it is for showing only, offsets no longer fit."""
    return text.translate(_VISIBLE)


def answer_lines(answer: Answer, document: Document) -> Iterator[str]:
    """The whole answer: what, how sure, why, where it stands, what speaks against it, what was not read."""
    yield f"Answer: {printable(answer.text)}" if answer.found else "The document does not say."
    yield standing_line(answer)
    if answer.explanation.strip() not in ("", answer.text.strip()):
        yield ""
        yield from _wrapped(answer.explanation)
    if answer.evidence:
        yield ""
        yield "Evidence"
        for number, evidence in enumerate(answer.evidence, start=1):
            yield from _evidence_lines(f"[{number}]", evidence, document)
    if answer.conflicts:
        yield ""
        yield "Other parts of the document say otherwise"
        for finding in answer.conflicts:
            yield from finding_lines(finding, document)
    if answer.coverage.failed_chunks or answer.warnings:
        yield ""
        yield from (f"Warning: {printable(warning)}" for warning in answer.warnings)
        yield from _failed_lines(answer.coverage)


def standing_line(answer: Answer) -> str:
    """Confidence, coverage and time in one line."""
    sure = f"confidence {answer.confidence} of 5 ({answer.probability:.0%})" if answer.found else "nothing found"
    return f"{sure} · {coverage_text(answer.coverage)} · {duration(answer.total_seconds)}"


def coverage_text(coverage: Coverage) -> str:
    if coverage.tokens_left_out:
        return f"{coverage.share:.0%} of the document read, {coverage.tokens_left_out:,} tokens left out"
    chunks = f"{coverage.chunks_read} of {coverage.chunks} chunks read ({coverage.share:.0%})"
    return f"{chunks}, {coverage.chunks_extracted} of them closely"


def provisional_line(answer: Answer, reason: str, document: Document) -> str:
    """One line for an answer that may still be overturned."""
    where = place_text(answer.evidence[0], document) if answer.evidence else ""
    return (
        f"So far: {printable(answer.text)}  ({reason}; {answer.probability:.0%} sure"
        f"{', ' + where if where else ''}; {answer.coverage.share:.0%} of the document read)"
    )


def place_text(evidence: Evidence, document: Document) -> str:
    """Source and line where a quote stands, empty if it was not found."""
    if evidence.span is None:
        return ""
    name, line = document.place(evidence.span.start)
    return f"{printable(name)}, line {line}"


def usage_lines(usage: Mapping[Stage, Usage], seconds: Mapping[Stage, float]) -> Iterator[str]:
    """A table with one row per stage and the sum. Calls answered by the journal cost nothing and stand apart."""
    yield f"{'stage':<9}{'calls':>7}{'journal':>9}{'prompt':>11}{'cached':>11}{'output':>9}{'time':>10}"
    rows = [(stage.value, usage[stage], duration(seconds.get(stage, 0.0))) for stage in Stage if stage in usage]
    for name, used, time in [*rows, ("all", sum(usage.values(), Usage()), "")]:
        yield (
            f"{name:<9}{used.calls:>7,}{used.journal_calls:>9,}{used.prompt_tokens:>11,}{used.cached_tokens:>11,}"
            f"{used.output_tokens:>9,}{time:>10}"
        ).rstrip()


def plan_lines(plan: Plan, *, kv_bytes_per_token: int, tokens_per_s: float | None) -> Iterator[str]:
    """What a run will cost at most. `tokens_per_s` is what this machine was measured at, if it was."""
    yield f"Strategy     {plan.strategy}: {plan.reason}"
    yield f"Document     {plan.document_tokens:,} tokens in {plan.chunks:,} chunks"
    yield f"Calls        at most {plan.calls:,}, at most {plan.depth} one after another"
    yield f"Tokens       at most {plan.prompt_tokens:,} in and {plan.output_tokens:,} out"
    yield f"Steps        {', '.join(find_strategy(plan.strategy).steps)}"
    memory_gib = plan.document_tokens * kv_bytes_per_token / 2**30
    yield f"KV memory    {memory_gib:.2f} GiB to keep the whole document warm"
    if tokens_per_s:
        read_s = plan.document_tokens / tokens_per_s
        yield f"Time         about {duration(read_s)} to read it once, at {tokens_per_s:,.0f} tokens/s as last measured"
    else:
        yield "Time         not known: nothing was measured with this model on this machine yet"


def _evidence_lines(label: str, evidence: Evidence, document: Document) -> Iterator[str]:
    quote = printable(evidence.quote.strip())
    if len(quote) > _LONGEST_QUOTE_CHARS:
        quote = f"{quote[:_LONGEST_QUOTE_CHARS]} … ({len(quote):,} characters)"
    first, *rest = quote.splitlines() or [""]
    yield f"{label} “{first}" + ("" if rest else "”")
    indent = " " * (len(label) + 2)
    for position, line in enumerate(rest, start=1):
        yield indent + line + ("”" if position == len(rest) else "")
    span = evidence.span
    where = f"{place_text(evidence, document)}, characters {span.start:,}-{span.end:,}; " if span else ""
    yield f"{' ' * len(label)} {where}{_FOUND_AS[evidence.alignment]}"


def finding_lines(finding: Finding, document: Document) -> Iterator[str]:
    """One finding with its quotes and where they stand."""
    yield f"  {printable(finding.answer)} ({finding.probability:.0%} sure)"
    for evidence in finding.evidence:
        yield from _evidence_lines("   ", evidence, document)


def _failed_lines(coverage: Coverage, max_shown: int = 10) -> Iterator[str]:
    for chunk in coverage.failed_chunks[:max_shown]:
        yield (
            f"Not read: chunk {chunk.index}, characters {chunk.span.start:,}-{chunk.span.end:,}: "
            f"{printable(chunk.message or chunk.error)}"
        )
    if (more := len(coverage.failed_chunks) - max_shown) > 0:
        yield f"Not read: {more} more chunks"


def _wrapped(text: str) -> Iterator[str]:
    for line in printable(text).splitlines():
        yield from textwrap.wrap(line, width=100) or [""]
