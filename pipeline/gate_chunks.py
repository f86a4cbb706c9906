"""The relevance gate: one constrained Yes/No token per chunk, scored against the document's other chunks.

The level of the scores moves with the question, their order does not (measured on small models); so a chunk is kept
by its distance to the best score of the document, the best few are always kept, and a chunk whose score is clearly
positive need not wait for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.model import Call, Completion, Sampling, Stage
from pipeline.prompt import TaskPrompts
from pipeline.split_document import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Fitted per model on generated data for a recall of at least 99.5 % (`python -m benchmarks run gate`)."""

    enabled: bool = False
    """False for models too weak to be gated: every chunk is then mapped."""
    keep_margin: float = 4.0
    """Chunks within this many nats of the document's best score are kept."""
    keep_at_least: int = 4
    clear_score: float = 1.0
    """A chunk that scores this much or more is read at once, while others are still being gated."""


def gate_call(chunk: Chunk, question_ids: bytes, prompts: TaskPrompts) -> Call: ...
