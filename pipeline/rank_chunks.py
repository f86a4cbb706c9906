"""The order in which chunks are sent: lexically closest to the question first (BM25, from a library).

Order of sending changes when a first answer is there, never which chunks are read or how findings are grouped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import bm25s

from pipeline.document import Document
from pipeline.split_document import Chunk

_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def rank_chunks(document: Document, chunks: Sequence[Chunk], question: str) -> list[int]:
    """Return all chunk indices, best first; document order among equals, and if no word is shared."""
    if len(chunks) < 2:
        return [chunk.index for chunk in chunks]
    query = _words(question)
    known = set(query)
    # Only the question's own words can score, so nothing else needs to be indexed; a stand-in keeps lengths right.
    corpus = [[word if word in known else "" for word in _words(document.slice(c.span))] for c in chunks]
    if not any(any(words) for words in corpus):
        return list(range(len(chunks)))
    index = bm25s.BM25()
    index.index(corpus, show_progress=False)
    scores = index.get_scores([word for word in known if any(word in words for words in corpus)])
    return sorted(range(len(chunks)), key=lambda i: (-float(scores[i]), i))


def _words(text: str) -> list[str]:
    """Lower-case words; runs of characters written without spaces become overlapping pairs."""
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if _WIDE.match(word) and len(word) > 1:
            words.extend(word[i : i + 2] for i in range(len(word) - 1))
        else:
            words.append(word)
    return words
