"""An answer and a score from every chunk; the best score wins, and nothing is merged.

After LangChain's map_rerank chain; departs in constrained output, in answers that are empty as data, and in a chunk
whose output cannot be parsed costing that chunk, not the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pipeline.chunks.call import chunk_call
from pipeline.chunks.rank import best_first, score_words
from pipeline.chunks.split import NO_CHUNK, Chunk
from pipeline.documents.document import Document
from pipeline.errors import MalformedOutput
from pipeline.findings.answer import NOTHING, Answer, conclude_from_one
from pipeline.findings.finding import Finding
from pipeline.llm.model import Call, Completion, Sampling, Stage
from pipeline.llm.schema import answer_schema, number_list, object_schema, parse_fields, whole_number
from pipeline.mapreduce.map import MAX_QUOTES, evidence_of
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.shared.map_every_chunk import map_every_chunk

BEST_SCORE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a chunk says, and how well it answers by its own word."""

    score: Annotated[int, range(BEST_SCORE + 1)]
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All that chunks said, in document order."""

    said: tuple[Scored, ...]


class MapRerank:
    """Map with scores, then take the best."""

    name = "map_rerank"
    steps = ("best",)
    options = (*CHUNK_OPTIONS, "best_first")

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = _begin(document, request, resources)
        calls = [_rank_call(chunk, run) for chunk in run.chunks]
        n = len(calls)
        return Plan(
            strategy=self.name,
            reason="every chunk answers for itself",
            document_tokens=run.document_tokens(),
            chunks=n,
            calls=n,
            prompt_tokens=sum(len(call.prompt.token_ids) for call in calls),
            output_tokens=sum(call.sampling.max_output_tokens for call in calls),
            depth=1,
            graph=f"flowchart LR\n    document --> split[{n} chunks] --> map[answer and score ×{n}]"
            " --> best[best score] --> answer",
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        run = _begin(document, request, resources)
        # Under a limit the likeliest chunks are read; the best score does not depend on the order.
        order = best_first(score_words(document, run.chunks, request.question)) if request.best_first else None
        scores: dict[int, int] = {}

        def read(chunk: Chunk, completion: Completion) -> Finding:
            scores[chunk.index], finding = _read(completion, chunk, run)
            return finding

        resources.emit(StageStarted(stage=Stage.MAP, calls=len(run.chunks)))
        said = await map_every_chunk(run, lambda chunk: _rank_call(chunk, run), read, order=order)
        ranking = Ranking(said=tuple(Scored(score=scores[index], finding=said[index]) for index in said))
        ranking = run.step("best", ranking)
        best = best_scored(ranking.said)
        others = [scored.finding for scored in ranking.said]
        return run.account.answer(NOTHING if best is None else conclude_from_one(best.finding, others))


def best_scored(said: Sequence[Scored]) -> Scored | None:
    """The one with the highest score; among equals the first in the document."""
    return max(said, key=lambda scored: scored.score, default=None)


def _begin(document: Document, request: Request, resources: Resources) -> Run:
    run = begin_run(document, request, resources)
    empty = _rank_call(NO_CHUNK, run)
    room = resources.budget.room_tokens(
        fixed_tokens=len(empty.prompt.token_ids), output_tokens=empty.sampling.max_output_tokens
    )
    run.split(room)
    return run


def _rank_call(chunk: Chunk, run: Run) -> Call:
    schema = object_schema(
        sentences=number_list(len(chunk.sentences), MAX_QUOTES),
        answer=answer_schema(run.request.letters),
        score=whole_number(BEST_SCORE),
    )
    own = run.prompt("map_rerank", "map").encode(run.tokenizer, {"question": run.question_ids})
    sampling = Sampling(max_output_tokens=run.task.map_output_tokens, json_schema=schema)
    return chunk_call(chunk, own, sampling, run.tokenizer, header=run.task.header)


def _read(completion: Completion, chunk: Chunk, run: Run) -> tuple[int, Finding]:
    parsed = parse_fields(completion)
    stated = parsed.number("score")
    if stated is None:
        raise MalformedOutput("The model gave no score.")
    score = min(BEST_SCORE, max(0, stated))
    finding = Finding(
        chunk_indices=(chunk.index,),
        evidence=evidence_of(parsed, chunk, run.document, run.request.question),
        rationale="",
        answer=parsed.text("answer") if score else "",  # a score of 0 says that the chunk does not answer
        stated_confidence=min(5, 1 + 5 * score // BEST_SCORE),
        truncated=parsed.truncated,
    )
    return score, run.judge(finding)
