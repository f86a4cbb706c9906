"""Where in the document a copied quote stands: exact, then evened out, then fuzzy with a threshold, else nowhere."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rapidfuzz import fuzz

from pipeline.chunks.split import Chunk
from pipeline.documents.document import Document, Span
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.text import contains_words, words_of

FUZZY_LEAST = 0.85
"""Similarity (rapidfuzz partial ratio) below which a quote counts as invented."""
_SHORTEST_FUZZY_CHARS = 12
MAX_EVIDENCE = 8
_SAME = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "."})
_DROPPED = re.compile(r"[\s*_`]+")


def locate_quote(document: Document, chunk: Chunk, quote: str) -> Evidence:
    """Find `quote` in `chunk`. The evidence's quote is the document's text, not the model's, wherever it is found."""
    text = document.slice(chunk.span)
    wanted = quote.strip()
    start = text.find(wanted) if wanted else -1
    if start >= 0:
        return _evidence(document, chunk, Span(start, start + len(wanted)), Alignment.EXACT, 1.0)
    even_text, positions = _normalise(text)
    even_quote, _ = _normalise(wanted)
    start = even_text.find(even_quote) if even_quote else -1
    if start >= 0:
        span = Span(positions[start], positions[start + len(even_quote) - 1] + 1)
        return _evidence(document, chunk, span, Alignment.NORMALISED, 1.0)
    if len(even_quote) >= _SHORTEST_FUZZY_CHARS:
        match = fuzz.partial_ratio_alignment(even_quote, even_text, score_cutoff=100 * FUZZY_LEAST)
        if match is not None and match.dest_end > match.dest_start:
            span = Span(positions[match.dest_start], positions[match.dest_end - 1] + 1)
            return _evidence(document, chunk, span, Alignment.FUZZY, match.score / 100)
    return Evidence(quote=quote, chunk_index=chunk.index, span=None, alignment=Alignment.UNLOCATED, similarity=0.0)


def point_to_sentences(document: Document, chunk: Chunk, numbers: list[int]) -> tuple[Evidence, ...]:
    """Evidence for sentence numbers as shown in the chunk, counted from 1; numbers that do not exist are left out.

    The quote is the sentence without the white space around it. Neighbouring sentences become one quote.
    """
    evidence: list[Evidence] = []
    for first, last in _runs(sorted({n for n in numbers if 1 <= n <= len(chunk.sentences)}), chunk):
        start, end = chunk.sentences[first - 1].span.start, chunk.sentences[last - 1].span.end
        text = document.text[start:end]
        span = Span(start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip()))
        if len(span):
            evidence.append(
                Evidence(
                    quote=document.slice(span),
                    chunk_index=chunk.index,
                    span=span,
                    alignment=Alignment.POINTER,
                )
            )
    return tuple(evidence)


def find_answer(document: Document, chunk: Chunk, answer: str, hint: str) -> Evidence | None:
    """The sentence that holds the answer's words, and most of the hint's rare words besides; None if none holds it.

    Small models find the right answer more often than its sentence's number (docs/experiments.md).
    """
    wanted = words_of(answer)
    sentences = [words_of(document.slice(sentence.span)) for sentence in chunk.sentences]
    holding = [number for number, words in enumerate(sentences) if contains_words(words, wanted)]
    if not holding:
        return None
    spread = Counter(word for words in sentences for word in set(words))
    hints = set(words_of(hint)) - set(wanted)

    def closeness(number: int) -> tuple[float, int]:
        return sum(1 / spread[word] for word in hints.intersection(sentences[number])), -number

    best = max(holding, key=closeness)
    [evidence] = point_to_sentences(document, chunk, [best + 1])
    return replace(evidence, alignment=Alignment.ANSWER)


def contains_answer(evidence: Evidence, answer: str) -> bool:
    return contains_words(words_of(evidence.quote), words_of(answer))


def relocate_to_answer(
    named: tuple[Evidence, ...], document: Document, chunks: Sequence[Chunk], answer: str, hint: str
) -> tuple[Evidence, ...]:
    """What the model named. If none of it holds the answer but other sentences of the chunks do, those instead."""
    if any(contains_answer(evidence, answer) for evidence in named):
        return named
    holders = [find_answer(document, chunk, answer, hint) for chunk in chunks]
    return tuple(holder for holder in holders if holder is not None) or named


def _runs(numbers: list[int], chunk: Chunk) -> list[tuple[int, int]]:
    """First and last of the numbers whose sentences follow one another in the document, not only in the chunk."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1 and _adjoin(chunk, number - 1):
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _adjoin(chunk: Chunk, number: int) -> bool:
    """Whether sentence `number` ends where the next begins; a document whose middle was cut out has a gap."""
    return chunk.sentences[number - 1].span.end == chunk.sentences[number].span.start


def _normalise(text: str) -> tuple[str, list[int]]:
    """Text without differences that models introduce, and for each of its characters the place in `text`."""
    characters: list[str] = []
    positions: list[int] = []
    for position, character in enumerate(text):
        if _DROPPED.match(character):
            continue
        for even in unicodedata.normalize("NFKC", character.translate(_SAME)).casefold():
            characters.append(even)
            positions.append(position)
    return "".join(characters), positions


def _evidence(document: Document, chunk: Chunk, inside: Span, alignment: Alignment, similarity: float) -> Evidence:
    span = Span(chunk.span.start + inside.start, chunk.span.start + inside.end)
    return Evidence(
        quote=document.slice(span),
        chunk_index=chunk.index,
        span=span,
        alignment=alignment,
        similarity=similarity,
    )


def merge_evidence(findings: Sequence[Finding], most: int) -> tuple[Evidence, ...]:
    """Located evidence of all findings, each place once, most probable findings first, then in document order."""
    ranked = sorted(findings, key=lambda finding: -finding.probability)
    places = {e.span: e for finding in ranked for e in finding.evidence if e.span is not None}
    return tuple(sorted(list(places.values())[:most], key=lambda e: e.span.start if e.span else 0))


def spread_evidence(evidence: Sequence[Evidence], most: int) -> tuple[Evidence, ...]:
    """At most `most` located quotes, taken evenly from all: for answers that rest on the whole document."""
    located = [quote for quote in evidence if quote.span is not None]
    if len(located) <= most:
        return tuple(located)
    return tuple(located[place * len(located) // most] for place in range(most))
