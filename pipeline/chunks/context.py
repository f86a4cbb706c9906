"""What stands around a chunk, shown beside it: neighbouring text and the headings above. Text assembly, no calls.

The cheapest cure for a chunk that says "it" or "the company" of something named a page earlier. Only the chunk's own
sentences have numbers, so evidence still points into the chunk. After the gather operation of DocETL
(arXiv 2410.12189); differs in reading headings off the text where DocETL asks a model for them.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.chunks.split import Chunk, Sentence
from pipeline.documents.document import Document
from pipeline.llm.tokenizer import Tokenizer
from pipeline.tasks import load_prompt

HEADINGS_TOKENS = 96
"""At most, of the whole path of headings above a chunk."""
_PATH = " > "
_MARKED_LINE = re.compile(r"^(?:(?P<fence>```|~~~)|(?P<marks>#{1,6})[ \t]+(?P<title>\S.*))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Heading:
    """A Markdown heading, as HTML's become too when they are loaded."""

    start: int
    level: int
    title: str


def gather_context(
    document: Document, chunks: Sequence[Chunk], tokenizer: Tokenizer, neighbour_tokens: int
) -> tuple[Chunk, ...]:
    """Put up to `neighbour_tokens` of the text on either side, and the headings above, around each chunk's tokens.

    Sentences, numbers and spans stay as they are. A chunk grows by `context_tokens` at most.
    """
    gathered: list[Chunk] = []
    for chunk, headings in zip(chunks, headings_above(document, chunks), strict=True):
        path = _PATH.join(heading.title for heading in headings)
        before = chunks[chunk.index - 1].sentences if chunk.index else ()
        after = chunks[chunk.index + 1].sentences if chunk.index + 1 < len(chunks) else ()
        ids = array("I")
        ids.extend(_shown("headings", tokenizer.encode_content(path)[:HEADINGS_TOKENS], tokenizer))
        ids.extend(_shown("before", _nearest(reversed(before), neighbour_tokens, from_end=True), tokenizer))
        ids.extend(chunk.numbered_token_ids)
        ids.extend(_shown("after", _nearest(after, neighbour_tokens, from_end=False), tokenizer))
        gathered.append(replace(chunk, numbered_token_ids=ids))
    return tuple(gathered)


def context_tokens(neighbour_tokens: int, tokenizer: Tokenizer) -> int:
    """Tokens that gathering adds to a chunk at most; none if nothing is gathered."""
    if not neighbour_tokens:
        return 0
    labels = sum(len(_shown(name, [0], tokenizer)) for name in ("headings", "before", "after"))
    return labels + HEADINGS_TOKENS + 2 * neighbour_tokens


def find_headings(text: str) -> list[Heading]:
    """Headings in their order; number signs inside fenced code are none."""
    headings: list[Heading] = []
    in_code = False
    for match in _MARKED_LINE.finditer(text):
        if match["fence"]:
            in_code = not in_code
        elif not in_code:
            headings.append(Heading(match.start(), len(match["marks"]), match["title"].rstrip(" #\t\r")))
    return headings


def headings_above(document: Document, chunks: Iterable[Chunk]) -> Iterator[list[Heading]]:
    """For each chunk the path of headings that its first line stands under, outermost first; one pass over all."""
    following = deque(find_headings(document.text))
    path: list[Heading] = []
    for chunk in chunks:
        text = document.slice(chunk.span)
        first = chunk.span.start + len(text) - len(text.lstrip())
        while following and following[0].start < first:
            heading = following.popleft()
            path = [*_outside(path, heading), heading]
        begins_chunk = bool(following) and following[0].start == first
        yield _outside(path, following[0]) if begins_chunk else path


def _outside(path: list[Heading], heading: Heading) -> list[Heading]:
    return [outer for outer in path if outer.level < heading.level]


def _nearest(sentences: Iterable[Sentence], max_tokens: int, *, from_end: bool) -> array[int]:
    """As many whole sentences as fit, nearest first; the near end of the first one if not even that fits."""
    kept: list[array[int]] = []
    room = max_tokens
    for sentence in sentences:
        ids = sentence.token_ids
        if len(ids) > room:
            if not kept:
                kept = [ids[-room:] if from_end else ids[:room]]
            break
        kept.append(ids)
        room -= len(ids)
    joined = array("I")
    for ids in reversed(kept) if from_end else kept:
        joined.extend(ids)
    return joined


def _shown(name: str, content: Sequence[int], tokenizer: Tokenizer) -> array[int]:
    if not content:
        return array("I")
    ids = load_prompt("gather", name).encode(tokenizer, {"text": content})
    ids.extend(tokenizer.encode_template("\n"))
    return ids
