"""How close each chunk's words are to the question's: BM25, from a library.

It orders the sending, so that a first answer comes early, and it is the second judge beside the relevance gate: a
small model overlooks a name that the question and the chunk share (docs/experiments.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import bm25s

from pipeline.chunks.split import Chunk, Sentence
from pipeline.documents.document import Document
from pipeline.text import words_of


def score_words(document: Document, pieces: Sequence[Chunk] | Sequence[Sentence], question: str) -> list[float]:
    """BM25 of each piece for the question, over the document's best: 0 to 1; all 0 if no word is shared."""
    known = set(words_of(question))
    # Only the question's own words can score, so nothing else is indexed; a stand-in keeps the lengths right.
    corpus = [[w if w in known else "" for w in words_of(document.slice(piece.span))] for piece in pieces]
    present = sorted({word for words in corpus for word in words} - {""})
    if not present:
        return [0.0] * len(pieces)
    index = bm25s.BM25()
    index.index(corpus, show_progress=False)
    scores = [max(0.0, float(score)) for score in index.get_scores(present)]
    best = max(scores)
    return [score / best for score in scores] if best > 0 else scores


def best_first(scores: Sequence[float]) -> list[int]:
    """All chunk indices, best first; document order among equals."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))
