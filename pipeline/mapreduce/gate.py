"""The relevance gate: one constrained Yes/No token per chunk, scored against the document's other chunks.

The level of the scores moves with the question, their order does not (measured on small models, docs/experiments.md).
So a chunk is kept by its distance to the best score of the document, the best few are always kept, and a chunk whose
score is clearly positive need not wait for the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import Chunk
from pipeline.findings.confidence import GateSettings
from pipeline.llm.model import Call, Sampling, Stage
from pipeline.llm.tokenizer import Tokenizer
from pipeline.tasks import Task


def gate_call(chunk: Chunk, question_ids: Sequence[int], task: Task, tokenizer: Tokenizer) -> Call:
    """Ask for one token; header and chunk are a prefix that the map call and other questions find cached."""
    own = task.gate.encode(tokenizer, {"question": question_ids})
    sampling = Sampling(max_output_tokens=1, choices=(task.yes, task.no))
    return chunk_call(chunk, own, sampling, tokenizer, header=task.header, stage=Stage.GATE)


def relevance(gate_score: float, lexical_score: float, settings: GateSettings) -> float:
    """Two judges, one score in nats: what the model says of the chunk, and how close its words are (0 to 1)."""
    return gate_score + settings.lexical_nats * lexical_score


def keep_chunks(scores: Mapping[int, float], settings: GateSettings) -> list[int]:
    """Indices of the chunks worth extracting from, best first."""
    ranked = sorted(scores, key=lambda index: (-scores[index], index))
    if not ranked:
        return []
    threshold = scores[ranked[0]] - settings.keep_margin
    return [index for place, index in enumerate(ranked) if place < settings.keep_at_least or scores[index] >= threshold]


class GatePass:
    """Scores as they come in, and which chunks they let through.

    The first few clear scores let their chunks through at once; the others wait until all are in. What is let through
    depends on `order`, not on when an outcome came: asked again, a question is read the same way.
    """

    def __init__(self, order: Sequence[int], settings: GateSettings) -> None:
        """`order`: the chunks' indices, as they are sent."""
        self._order = order
        self._settings = settings
        loop = asyncio.get_running_loop()
        self._kept: dict[int, asyncio.Future[bool]] = {index: loop.create_future() for index in order}
        self._scores: dict[int, float] = {}
        self._unscored: dict[int, bool] = {}
        """Whether a chunk without a score may pass."""
        self._looked_at = 0
        """Of `order`, so far."""
        self.passed = 0

    def add(self, index: int, score: float) -> asyncio.Future[bool]:
        """Whether the chunk with this score passes, as soon as that is known."""
        self._scores[index] = score
        self._look()
        return self._kept[index]

    def add_unscored(self, index: int, *, may_pass: bool) -> asyncio.Future[bool]:
        """The same for a chunk whose gate call failed: it may still hold the answer."""
        self._unscored[index] = may_pass
        self._look()
        return self._kept[index]

    def _look(self) -> None:
        for index in self._order[self._looked_at :]:
            if index not in self._scores and index not in self._unscored:
                return
            self._looked_at += 1
            clear = self._scores.get(index, -math.inf) >= self._settings.clear_score
            if clear and self.passed < self._settings.keep_at_least:
                self._let_through(index)
        for index in [*keep_chunks(self._scores, self._settings), *(i for i, may in self._unscored.items() if may)]:
            if not self._kept[index].done():
                self._let_through(index)
        for kept in self._kept.values():
            if not kept.done():
                kept.set_result(False)

    def _let_through(self, index: int) -> None:
        self.passed += 1
        self._kept[index].set_result(True)
