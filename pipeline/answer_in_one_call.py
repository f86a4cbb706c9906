"""One call that sees all there is to see: a whole document, or what was kept of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pipeline.answer import Answer, Coverage, FailedChunk
from pipeline.build_answer import build_answer
from pipeline.document import Document
from pipeline.events import StageStarted
from pipeline.finding import Finding
from pipeline.map_chunks import MOST_QUOTES, evidence_of, judge_finding
from pipeline.meter import Meter
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.parse_outcomes import complete_one
from pipeline.prompt import chat_prompt
from pipeline.reduce_findings import NOTHING, conclude_from_one
from pipeline.run import Plan, Request, Resources
from pipeline.split_document import NO_CHUNK, Chunk, encode_sentences, make_chunk
from pipeline.structured_output import CONFIDENCE, TEXT, number_list, object_schema, one_of, parse_fields
from pipeline.tasks import Task
from pipeline.tokenizer import Tokenizer


@lru_cache(maxsize=2)
def whole_document(document: Document, tokenizer: Tokenizer) -> Chunk:
    """The document as a single chunk, however long."""
    sentences = encode_sentences(document, tokenizer)
    return make_chunk(0, sentences, tokenizer) if sentences else NO_CHUNK


def direct_call(chunk: Chunk, question_ids: Sequence[int], task: Task, request: Request, tokenizer: Tokenizer) -> Call:
    """Ask for the answer, in the reduce's fields, with sentences in place of findings.

    The confidence is asked for besides, where the task's findings have one: no other judge sees the answer.
    """
    prompt = chat_prompt(
        tokenizer,
        shared=[task.direct_header.encode(tokenizer, {}), chunk.numbered_token_ids],
        own=[task.direct.encode(tokenizer, {"question": question_ids})],
    )
    every = {
        "explanation": TEXT,
        "answer": one_of(request.letters) if request.choices else TEXT,
        "confidence": CONFIDENCE,
    }
    wanted = {*task.reduce_fields, *task.map_fields}
    sentences = number_list(max(1, len(chunk.sentences)), MOST_QUOTES)
    schema = object_schema(sentences=sentences, **{name: every[name] for name in every if name in wanted})
    sampling = Sampling(max_output_tokens=task.reduce_output_tokens, json_schema=schema)
    return Call(prompt=prompt, sampling=sampling, stage=Stage.DIRECT, chunk_index=0, affinity=chunk.affinity)


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
    meter = Meter(resources.dispatcher, request.limits, resources.emit)
    resources.emit(StageStarted(stage=Stage.DIRECT, calls=1))
    outcome = await complete_one(
        resources.budget.prove(call), lambda completion: _read(completion, chunk, document, request), meter
    )
    failed: tuple[FailedChunk, ...] = ()
    conclusion = NOTHING
    if isinstance(outcome, CallFailed):
        failed = (
            FailedChunk(index=0, span=chunk.span, stage=Stage.DIRECT, error=outcome.error, message=outcome.message),
        )
    elif not outcome.is_empty:
        conclusion = conclude_from_one(judge_finding(outcome, None, resources.calibration))
    coverage = Coverage(
        chunks=1,
        chunks_read=1 - len(failed),
        chunks_extracted=1 - len(failed),
        failed_chunks=failed,
        document_tokens=len(chunk.plain_token_ids) + left_out_tokens,
        tokens_left_out=left_out_tokens,
    )
    return build_answer(conclusion, coverage, meter, warnings=warnings)


def _read(completion: Completion, chunk: Chunk, document: Document, request: Request) -> Finding:
    parsed = parse_fields(completion)
    return Finding(
        chunk_indices=(0,),
        evidence=evidence_of(parsed, chunk, document, request.question),
        rationale=parsed.text("explanation"),
        answer=parsed.text("answer"),
        stated_confidence=parsed.confidence(),
        truncated=parsed.truncated,
    )
