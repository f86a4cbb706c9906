"""The chunks of one request: as large as was asked for, with the context that was asked for, within what fits."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.document import Document
from pipeline.gather_context import context_tokens, gather_context
from pipeline.run import Request, Resources
from pipeline.split_document import Chunk, split_document


def choose_chunks(document: Document, request: Request, resources: Resources, room_tokens: int) -> Sequence[Chunk]:
    """Split so that each chunk, with what is gathered around it, takes at most `room_tokens`.

    The size is the request's, else the model's own. Raises ContextTooSmall where that leaves too little.
    """
    tokenizer = resources.tokenizer
    around = context_tokens(request.gather_tokens, tokenizer)
    size = min(request.chunk_tokens or resources.chunk_tokens, room_tokens - around)
    chunks = split_document(document, tokenizer, size)
    return gather_context(document, chunks, tokenizer, request.gather_tokens) if around else chunks
