"""Chooses the strategy, and says why in the plan."""

from __future__ import annotations

from dataclasses import replace

from pipeline.chunks.split import encode_sentences
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.mapreduce.strategy import MapReduce
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.strategy import Resources, Strategy
from pipeline.strategies.direct import Direct, excess_tokens, whole_call
from pipeline.strategies.summarize.strategy import Summarize
from pipeline.tasks import task_for


class Auto:
    """One call if the document fits it, else the strategy for the kind of work."""

    name = "auto"
    steps = ()
    """Those of the strategy that it chooses, which the plan names."""
    options = MapReduce.options
    """They count where it chooses a strategy that has them."""

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        strategy, reason = _choose(document, request, resources)
        return replace(strategy.plan(document, request, resources), reason=reason)

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        strategy, _ = _choose(document, request, resources)
        return await strategy.run(document, request, resources)


def _choose(document: Document, request: Request, resources: Resources) -> tuple[Strategy, str]:
    tokens = sum(len(sentence.token_ids) for sentence in encode_sentences(document, resources.tokenizer))
    if request.chunk_tokens is not None:
        because = "a chunk size was asked for"
    elif _fits_one_call(tokens, document, request, resources):
        return Direct(), f"chosen because the document's {tokens:,} tokens fit one call"
    else:
        because = f"the document's {tokens:,} tokens do not fit one call"
    if task_for(request.task, request.question).free_text:
        return Summarize(), f"chosen for the task {request.task}, because {because}"
    return MapReduce(), f"chosen because {because}"


def _fits_one_call(tokens: int, document: Document, request: Request, resources: Resources) -> bool:
    """The call itself is put together only for documents that might fit."""
    return (
        tokens < resources.budget.context_tokens
        and excess_tokens(whole_call(document, request, resources), resources) <= 0
    )
