"""Findings as text for the next prompt, within a proven number of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pipeline.findings.answer import confidence_of
from pipeline.findings.finding import Finding
from pipeline.llm.tokenizer import Tokenizer

QUOTES_TOKENS = 160
RATIONALE_TOKENS = 80
ANSWER_TOKENS = 320
LABELS_TOKENS = 80
RENDERED_TOKENS = QUOTES_TOKENS + RATIONALE_TOKENS + ANSWER_TOKENS + LABELS_TOKENS
"""No finding takes more than this in a prompt, so a group of several always shrinks when it becomes one."""


def render_finding(finding: Finding, number: int, chunks: int, tokenizer: Tokenizer) -> array[int]:
    """Encode one finding under its number; longer fields are cut at their share of `RENDERED_TOKENS`."""
    ids = array("I", tokenizer.encode_template(f"Finding {number} ({_parts(finding, chunks)}"))
    ids.extend(tokenizer.encode_template(f", confidence {confidence_of(finding.probability)}"))
    ids.extend(tokenizer.encode_template(")\n"))
    quotes = " … ".join(finding.located_quotes)
    for label, text, max_tokens in (
        ("Text: ", quotes, QUOTES_TOKENS),
        ("Rationale: ", finding.rationale, RATIONALE_TOKENS),
        ("Answer: ", finding.answer, ANSWER_TOKENS),
    ):
        if text:
            ids.extend(tokenizer.encode_template(label))
            ids.extend(tokenizer.encode_content(text)[:max_tokens])
            ids.extend(tokenizer.encode_template("\n"))
    assert len(ids) <= RENDERED_TOKENS, f"a finding took {len(ids)} tokens"
    return ids


def _parts(finding: Finding, chunks: int) -> str:
    first, last = finding.chunk_indices[0] + 1, finding.chunk_indices[-1] + 1
    return f"part {first} of {chunks}" if first == last else f"parts {first} to {last} of {chunks}"


def join_rendered(rendered: Sequence[Sequence[int]], tokenizer: Tokenizer) -> array[int]:
    ids = array("I")
    for finding in rendered:
        ids.extend(finding)
        ids.extend(tokenizer.encode_template("\n"))
    return ids
