"""The whole document and the question in one call: the control of every comparison, and the best way if it fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import NO_CHUNK, Chunk, encode_sentences, make_chunk
from pipeline.documents.document import Document
from pipeline.errors import DocumentTooLong
from pipeline.findings.answer import NOTHING, Answer, conclude_from_one
from pipeline.findings.finding import Finding, Findings
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.schema import (
    CONFIDENCE,
    TEXT,
    answer_schema,
    number_list,
    object_schema,
    parse_fields,
)
from pipeline.llm.tokenizer import Tokenizer
from pipeline.mapreduce.map import MAX_QUOTES, evidence_of
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.run import begin_run, encode_question
from pipeline.run.strategy import Resources
from pipeline.tasks import Task, task_for

GRAPH = "flowchart LR\n    document --> direct[one call] --> answer[answer with evidence]"

_NO_ANSWER = re.compile(r"\W*(the )?document does not answer the question\W*", re.IGNORECASE)
"""The prompt's own words, which a small model gives back in place of an empty answer."""


class Direct:
    """One call; a document that does not fit is refused, never cut."""

    name = "direct"
    steps = ("answer",)
    options = ()

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        """Raises DocumentTooLong, which says how many tokens over."""
        call = _proven(document, request, resources)
        chunk = whole_document(document, resources.tokenizer)
        room = resources.budget.context_tokens
        reason = f"document, question and answer take {call.cost_tokens():,} of the context's {room:,} tokens"
        return plan_one_call(self.name, reason, call, len(chunk.plain_token_ids), GRAPH)

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        chunk = whole_document(document, resources.tokenizer)
        return await answer_in_one_call(document, chunk, _proven(document, request, resources), request, resources)


@lru_cache(maxsize=2)
def whole_document(document: Document, tokenizer: Tokenizer) -> Chunk:
    """The document as a single chunk, however long."""
    sentences = encode_sentences(document, tokenizer)
    return make_chunk(0, sentences, tokenizer) if sentences else NO_CHUNK


def whole_call(document: Document, request: Request, resources: Resources) -> Call:
    """The one call, whether it fits or not."""
    return direct_call(
        whole_document(document, resources.tokenizer),
        encode_question(request, resources),
        task_for(request.task, request.question),
        request,
        resources.tokenizer,
    )


def excess_tokens(call: Call, resources: Resources) -> int:
    """Tokens of prompt and output beyond the context; not positive if the call fits."""
    return call.cost_tokens() - resources.budget.context_tokens


def _proven(document: Document, request: Request, resources: Resources) -> Call:
    call = whole_call(document, request, resources)
    excess = excess_tokens(call, resources)
    if excess > 0:
        raise DocumentTooLong(
            f"The document is {excess:,} tokens too long for one call: with the question it takes "
            f"{len(call.prompt.token_ids):,} tokens and the answer up to {call.sampling.max_output_tokens:,}, but the "
            f"context has {resources.budget.context_tokens:,}. Take --strategy auto, or a larger context."
        )
    return call


def direct_call(chunk: Chunk, question_ids: Sequence[int], task: Task, request: Request, tokenizer: Tokenizer) -> Call:
    """Ask for the answer, in the reduce's fields, with sentences in place of findings.

    The confidence is asked for besides, where the task's findings have one: no other judge sees the answer.
    """
    every = {
        "explanation": TEXT,
        "answer": answer_schema(request.letters, may_be_empty=False),
        "confidence": CONFIDENCE,
    }
    wanted = {*task.reduce_fields, *task.map_fields}
    sentences = number_list(len(chunk.sentences), MAX_QUOTES)
    schema = object_schema(sentences=sentences, **{name: every[name] for name in every if name in wanted})
    sampling = Sampling(max_output_tokens=task.reduce_output_tokens, json_schema=schema)
    own = task.direct.encode(tokenizer, {"question": question_ids})
    return chunk_call(chunk, own, sampling, tokenizer, header=task.direct_header, stage=Stage.DIRECT)


def plan_one_call(strategy: str, reason: str, call: Call, document_tokens: int, graph: str) -> Plan:
    return Plan(
        strategy=strategy,
        reason=reason,
        document_tokens=document_tokens,
        chunks=1,
        calls=1,
        prompt_tokens=len(call.prompt.token_ids),
        output_tokens=call.sampling.max_output_tokens,
        depth=1,
        graph=graph,
    )


async def answer_in_one_call(
    document: Document,
    chunk: Chunk,
    call: Call,
    request: Request,
    resources: Resources,
    *,
    left_out_tokens: int = 0,
    warnings: Sequence[str] = (),
) -> Answer:
    """Make the call and read its answer; a call that fails leaves an answer that was not found, and says why."""
    run = begin_run(document, request, resources)
    run.read_as([chunk])
    run.account.warnings += warnings
    resources.emit(StageStarted(stage=Stage.DIRECT, calls=1))
    found = await complete_parsed(
        resources.budget.check_fits(call), lambda completion: _read(completion, chunk, document, request), run.meter
    )
    said: list[Finding] = []
    if isinstance(found, CallFailed):
        run.account.add_failed(0, found, Stage.DIRECT)
    else:
        run.account.read.add(0)
        said = [run.judge(found)] if found.answer else []
    said = list(run.step("answer", Findings(findings=tuple(said))).findings)
    conclusion = conclude_from_one(max(said, key=lambda finding: finding.probability), said) if said else NOTHING
    tokens = len(chunk.plain_token_ids) + left_out_tokens
    coverage = replace(run.account.coverage(), document_tokens=tokens, tokens_left_out=left_out_tokens)
    return run.account.answer(conclusion, coverage=coverage)


def _read(completion: Completion, chunk: Chunk, document: Document, request: Request) -> Finding:
    parsed = parse_fields(completion)
    answer = parsed.text("answer")
    return Finding(
        chunk_indices=(0,),
        evidence=evidence_of(parsed, chunk, document, request.question),
        rationale=parsed.text("explanation"),
        answer="" if _NO_ANSWER.fullmatch(answer) else answer,
        stated_confidence=parsed.confidence(),
        truncated=parsed.truncated,
    )
