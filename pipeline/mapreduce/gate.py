"""The relevance gate: one constrained Yes/No token per chunk, scored against the document's other chunks.

The level of the scores moves with the question, their order does not (measured on small models, docs/experiments.md).
So a chunk is kept by its distance to the best score of the document, the best few are always kept, and a chunk whose
score is clearly positive need not wait for the others.
"""

from __future__ import annotations

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
