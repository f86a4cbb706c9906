"""The order in which chunks are sent: lexically closest to the question first (BM25, from a library).

Order of sending changes when a first answer is there, never which chunks are read or how findings are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence

import bm25s

from pipeline.document import Document
from pipeline.split_document import Chunk
from pipeline.words import words_of


def rank_chunks(document: Document, chunks: Sequence[Chunk], question: str) -> list[int]:
    """Return all chunk indices, best first; document order among equals, and if no word is shared."""
    if len(chunks) < 2:
        return [chunk.index for chunk in chunks]
    query = words_of(question)
    known = set(query)
    # Only the question's own words can score, so nothing else needs to be indexed; a stand-in keeps lengths right.
    corpus = [[word if word in known else "" for word in words_of(document.slice(c.span))] for c in chunks]
    if not any(any(words) for words in corpus):
        return list(range(len(chunks)))
    index = bm25s.BM25()
    index.index(corpus, show_progress=False)
    scores = index.get_scores([word for word in known if any(word in words for words in corpus)])
    return sorted(range(len(chunks)), key=lambda i: (-float(scores[i]), i))
