"""A call about one chunk: header and chunk first, so that every strategy and every question finds them cached."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.chunks.split import Chunk
from pipeline.llm.model import Call, Sampling, Stage
from pipeline.llm.prompt import PromptTemplate, chat_prompt
from pipeline.llm.tokenizer import Tokenizer


def chunk_call(
    chunk: Chunk,
    own: Sequence[int],
    sampling: Sampling,
    tokenizer: Tokenizer,
    *,
    header: PromptTemplate,
    stage: Stage = Stage.MAP,
) -> Call:
    """`own` is what is asked about the chunk."""
    prompt = chat_prompt(tokenizer, shared=[header.encode(tokenizer, {}), chunk.numbered_token_ids], own=[own])
    return Call(prompt=prompt, sampling=sampling, stage=stage, chunk_index=chunk.index, affinity=chunk.affinity)
