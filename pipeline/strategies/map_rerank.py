"""An answer and a score from every chunk; the best score wins, and nothing is merged.

After LangChain's map_rerank chain; departs in constrained output, in answers that are empty as data, and in a chunk
whose output cannot be parsed costing that chunk, not the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.answer import Answer
from pipeline.build_answer import build_answer
from pipeline.choose_chunks import choose_chunks
from pipeline.document import Document
from pipeline.errors import MalformedOutput
from pipeline.finding import Finding
from pipeline.map_chunks import MOST_QUOTES, evidence_of, judge_finding
from pipeline.map_every_chunk import ReadChunk, map_every_chunk
from pipeline.meter import Meter
from pipeline.model import Call, Completion, Sampling, Stage
from pipeline.prompt import chat_prompt
from pipeline.rank_chunks import best_first, score_words
from pipeline.reduce_findings import NOTHING, conclude_from_one
from pipeline.run import Plan, Request, Resources
from pipeline.split_document import NO_CHUNK, Chunk
from pipeline.strategies.map_reduce import encode_question
from pipeline.structured_output import TEXT, number_list, object_schema, one_of, parse_fields, whole_number
from pipeline.tasks import load_prompt, task_for

BEST_SCORE = 100


class MapRerank:
    """Map with scores, then take the best."""

    name = "map_rerank"

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        question_ids = encode_question(request, resources)
        chunks = _chunks(document, question_ids, request, resources)
        calls = [_rank_call(chunk, question_ids, request, resources) for chunk in chunks]
        n = len(chunks)
        return Plan(
            strategy=self.name,
            reason="every chunk answers for itself",
            document_tokens=sum(len(chunk.plain_token_ids) for chunk in chunks),
            chunks=n,
            calls=n,
            prompt_tokens=sum(len(call.prompt.token_ids) for call in calls),
            output_tokens=sum(call.sampling.max_output_tokens for call in calls),
            depth=1,
            graph=f"flowchart LR\n    document --> split[{n} chunks] --> map[answer and score ×{n}]"
            " --> best[best score] --> answer",
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        meter = Meter(resources.dispatcher, request.limits, resources.emit)
        question_ids = encode_question(request, resources)
        chunks = _chunks(document, question_ids, request, resources)
        # Under a limit the likeliest chunks are read; the best score does not depend on the order.
        order = best_first(score_words(document, chunks, request.question)) if request.best_first else None
        mapped = await map_every_chunk(
            chunks,
            lambda chunk: _rank_call(chunk, question_ids, request, resources),
            lambda chunk, completion: _read(completion, chunk, document, request, resources),
            meter,
            resources,
            order=order,
        )
        best = best_scored(mapped.read)
        conclusion = NOTHING
        if best is not None:
            conclusion = conclude_from_one(best.finding, [read.finding for read in mapped.read])
        return build_answer(conclusion, mapped.coverage, meter)


def best_scored(read: Sequence[ReadChunk]) -> ReadChunk | None:
    """The highest score; among equals the first in the document."""
    return max(read, key=lambda one: one.score, default=None)


def _chunks(document: Document, question_ids: Sequence[int], request: Request, resources: Resources) -> Sequence[Chunk]:
    empty = _rank_call(NO_CHUNK, question_ids, request, resources)
    room = resources.budget.room_tokens(
        fixed_tokens=len(empty.prompt.token_ids), output_tokens=empty.sampling.max_output_tokens
    )
    return choose_chunks(document, request, resources, room)


def _rank_call(chunk: Chunk, question_ids: Sequence[int], request: Request, resources: Resources) -> Call:
    """Header and chunk are the prefix that mapreduce has too, so a cache serves both."""
    tokenizer, task = resources.tokenizer, task_for(request.task, request.question)
    prompt = chat_prompt(
        tokenizer,
        shared=[task.header.encode(tokenizer, {}), chunk.numbered_token_ids],
        own=[load_prompt("map_rerank", "map").encode(tokenizer, {"question": question_ids})],
    )
    schema = object_schema(
        sentences=number_list(max(1, len(chunk.sentences)), MOST_QUOTES),
        answer=one_of([*request.letters, ""]) if request.choices else TEXT,
        score=whole_number(BEST_SCORE),
    )
    sampling = Sampling(max_output_tokens=task.map_output_tokens, json_schema=schema)
    return Call(prompt=prompt, sampling=sampling, stage=Stage.MAP, chunk_index=chunk.index, affinity=chunk.affinity)


def _read(
    completion: Completion, chunk: Chunk, document: Document, request: Request, resources: Resources
) -> ReadChunk:
    parsed = parse_fields(completion)
    stated = parsed.number("score")
    if stated is None:
        raise MalformedOutput("The model gave no score.")
    score = min(BEST_SCORE, max(0, stated))
    finding = Finding(
        chunk_indices=(chunk.index,),
        evidence=evidence_of(parsed, chunk, document, request.question),
        rationale="",
        answer=parsed.text("answer") if score else "",  # a score of 0 says that the chunk does not answer
        stated_confidence=min(5, 1 + 5 * score // BEST_SCORE),
        truncated=parsed.truncated,
    )
    return ReadChunk(finding=judge_finding(finding, None, resources.calibration), score=score)
