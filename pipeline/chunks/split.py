"""Split a document into sentences and chunks, in linear time, losing no character.

Each sentence is encoded once, here; every prompt of every question is then put together from these ids, so a length
is known before a prompt exists and nothing is tokenized twice. Borders depend on the document, the tokenizer and the
chunk size only, never on the question: the engine's prefix cache then serves the next question on the same document.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline.documents.document import Document, Span
from pipeline.errors import ContextTooSmall
from pipeline.llm.tokenizer import Tokenizer

SMALLEST_CHUNK_TOKENS = 512
"""Holds the longest sentence in any vocabulary: one token per byte at worst, 4 bytes per wide character."""

_BLANK_LINES = re.compile(r"\n[ \t\r\f]*\n\s*")
_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]*_]*\s+(?=[^\sa-z])|[。！？；][」』”’）]*\s*")
_CUTS = ("\n", "; ", ", ", " ")
"""Where an over-long sentence is cut, best first: lines and records before words."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """The smallest part of a document that evidence can point to: a sentence, a few lines, a record."""

    span: Span
    token_ids: array[int]
    ends_paragraph: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive sentences that fit one call."""

    index: int
    span: Span
    sentences: tuple[Sentence, ...]
    numbered_token_ids: array[int]
    """Each sentence after its number in brackets, counted from 1 in every chunk."""
    affinity: int
    """Of its calls: its place in the document, from a number that the document's first chunk decides."""

    @property
    def plain_token_ids(self) -> array[int]:
        """The sentences without their numbers."""
        ids = array("I")
        for sentence in self.sentences:
            ids.extend(sentence.token_ids)
        return ids


NO_CHUNK = Chunk(index=0, span=Span(0, 0), sentences=(), numbered_token_ids=array("I"), affinity=0)
"""Stands in a call whose fixed part is to be counted."""


@lru_cache(maxsize=8)
def split_document(document: Document, tokenizer: Tokenizer, chunk_tokens: int) -> tuple[Chunk, ...]:
    """Return chunks whose spans follow one another and rejoin to the document exactly.

    A numbered chunk has at most `chunk_tokens` tokens. It ends where a paragraph ends if that leaves it at least
    three quarters full, else where a sentence ends. A last chunk under a quarter full is balanced with the one before.
    An empty document has no chunks. The last few results are kept, for the next question on the same document.
    """
    if chunk_tokens < SMALLEST_CHUNK_TOKENS:
        raise ContextTooSmall(f"Chunks of {chunk_tokens} tokens are too small; the least is {SMALLEST_CHUNK_TOKENS}.")
    groups = _pack(encode_sentences(document, tokenizer), chunk_tokens, tokenizer)
    return tuple(make_chunk(index, group, tokenizer, groups[0]) for index, group in enumerate(groups))


def number_marker(number: int) -> str:
    """What stands before sentence `number`; trusted text, encoded apart from the sentence."""
    return f"[{number}]"


@lru_cache(maxsize=2)
def encode_sentences(document: Document, tokenizer: Tokenizer) -> tuple[Sentence, ...]:
    """All sentences, which rejoin to the document. Kept for the next split: sizes change, sentences do not."""
    pieces = list(_sentence_spans(document.text))
    encoded = tokenizer.encode_contents([document.text[start:end] for start, end, _ in pieces])
    return tuple(Sentence(Span(s, e), ids, ends) for (s, e, ends), ids in zip(pieces, encoded, strict=True))


def _sentence_spans(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whether it ends its paragraph) of consecutive pieces that cover `text`."""
    for start, end in _paragraph_spans(text):
        borders = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
        for sentence in _merge_short(text, start, [*(b for b in borders if b < end), end]):
            for piece_start, piece_end in _cut_long(text, *sentence):
                yield piece_start, piece_end, piece_end == end


def _paragraph_spans(text: str) -> Iterator[tuple[int, int]]:
    """A paragraph ends with the blank lines after it; the next line's indentation stays with that line."""
    start = 0
    for match in _BLANK_LINES.finditer(text):
        end = text.rfind("\n", start, match.end()) + 1
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def _merge_short(text: str, start: int, borders: list[int]) -> Iterator[tuple[int, int]]:
    """Show short sentences together with the next one (120 characters, 40 wide ones): each number costs tokens."""
    for border in borders[:-1]:
        if border - start >= 120 or (border - start >= 40 and not text[start:border].isascii()):
            yield start, border
            start = border
    yield start, borders[-1]


def _cut_long(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut what is longer than 400 characters (120 if not all ASCII): a pointer to a page points nowhere."""
    while True:
        longest = 400 if text[start : min(end, start + 400)].isascii() else 120
        if end - start <= longest:
            yield start, end
            return
        cut = start + longest
        for separator in _CUTS:
            found = text.rfind(separator, start + longest // 2, cut)
            if found >= 0:
                cut = found + len(separator)
                break
        yield start, cut
        start = cut


def _pack(sentences: Sequence[Sentence], chunk_tokens: int, tokenizer: Tokenizer) -> list[list[Sentence]]:
    """Greedy packing with a running total; see `split_document` for where a chunk may end."""
    groups: list[list[Sentence]] = []
    group: list[Sentence] = []
    total = 0
    for sentence in sentences:
        size = _numbered_tokens(sentence, len(group) + 1, tokenizer)
        if group and total + size > chunk_tokens:
            kept = _best_end(group, total, chunk_tokens, tokenizer)
            groups.append(group[:kept])
            group = group[kept:]
            total = sum(_numbered_tokens(moved, i + 1, tokenizer) for i, moved in enumerate(group))
            size = _numbered_tokens(sentence, len(group) + 1, tokenizer)
        group.append(sentence)
        total += size
    if group:
        groups.append(group)
    if len(groups) > 1 and total < chunk_tokens / 4:
        groups[-2:] = _halve(groups[-2] + groups[-1])
    return groups


def _best_end(group: list[Sentence], total: int, chunk_tokens: int, tokenizer: Tokenizer) -> int:
    """How many of the group's sentences to keep: up to its last paragraph end, if that is at most a quarter back."""
    left = total
    for count in range(len(group), 0, -1):
        if group[count - 1].ends_paragraph:
            return count
        left -= _numbered_tokens(group[count - 1], count, tokenizer)
        if left < 0.75 * chunk_tokens:
            break
    return len(group)


def _halve(sentences: list[Sentence]) -> list[list[Sentence]]:
    half = sum(len(sentence.token_ids) for sentence in sentences) / 2
    passed = 0
    for count, sentence in enumerate(sentences, start=1):
        passed += len(sentence.token_ids)
        if passed >= half and count < len(sentences):
            return [sentences[:count], sentences[count:]]
    return [sentences]


def _numbered_tokens(sentence: Sentence, number: int, tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode_template(number_marker(number))) + len(sentence.token_ids)


def make_chunk(
    index: int, sentences: Sequence[Sentence], tokenizer: Tokenizer, opening: Sequence[Sentence] = ()
) -> Chunk:
    """A chunk of these sentences, of which there is at least one, numbered from 1.

    `opening`: those of the document's first chunk, if it is not this one.
    """
    ids = array("I")
    for number, sentence in enumerate(sentences, start=1):
        ids.extend(tokenizer.encode_template(number_marker(number)))
        ids.extend(sentence.token_ids)
    return Chunk(
        index=index,
        span=Span(sentences[0].span.start, sentences[-1].span.end),
        sentences=tuple(sentences),
        numbered_token_ids=ids,
        affinity=index + _opening_number((opening or sentences)[0]),
    )


def _opening_number(sentence: Sentence) -> int:
    return int.from_bytes(hashlib.sha256(sentence.token_ids.tobytes()).digest()[:4])
