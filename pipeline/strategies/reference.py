"""Reference mode: the schedule of the published LLM×MapReduce (arXiv 2410.09342), to measure every gain against.

Calls of 4,096 tokens, no overlap, free text under four headings, temperature 0.7, a barrier after every stage, greedy
grouping, no gate, no schema, no pointers. The prompts are our own. Departs only where the public code is broken
(it fails on an empty result list, loops when a round does not shrink): such cases end in a visible failure instead.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.answer import Answer, FailedChunk, confidence_of
from pipeline.coverage import coverage_of, failed_chunk
from pipeline.document import Document
from pipeline.errors import CollapseStalled
from pipeline.finding import Evidence
from pipeline.locate_evidence import locate_quote
from pipeline.meter import Meter
from pipeline.model import Call, CallFailed, Completion, Outcome, Sampling, Stage
from pipeline.prompt import chat_prompt
from pipeline.run import Plan, Request, Resources
from pipeline.split_document import Chunk, split_document
from pipeline.strategies.map_reduce import encode_question
from pipeline.tasks import load_prompt

CALL_TOKENS = 4096
OUTPUT_TOKENS = 300
TEMPERATURE = 0.7
MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One stage's output: opaque text that goes into the next prompt, as published."""

    text: str
    evidence: tuple[Evidence, ...]

    @property
    def answer(self) -> str:
        return read_heading(self.text, "Answer")

    @property
    def is_empty(self) -> bool:
        return "NO INFORMATION" in (self.answer or self.text).upper()

    @property
    def score(self) -> float:
        match = re.search(r"\d+(?:\.\d+)?", read_heading(self.text, "Confidence Score"))
        return min(5.0, float(match.group())) if match else 0.0


class Reference:
    """Map, barrier, collapse, barrier, reduce."""

    name = "reference"

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        chunks = _split(document, encode_question(request, resources), resources)
        tokens = sum(len(chunk.plain_token_ids) for chunk in chunks)
        collapses = 2 * len(chunks) * OUTPUT_TOKENS // CALL_TOKENS
        calls = len(chunks) + collapses + 1
        return Plan(
            strategy=self.name,
            reason="the published schedule, for comparison",
            document_tokens=tokens,
            chunks=len(chunks),
            calls=calls,
            prompt_tokens=calls * CALL_TOKENS,
            output_tokens=calls * OUTPUT_TOKENS,
            depth=2 + (1 if collapses else 0),
            graph=f"flowchart LR\n    document --> map[map ×{len(chunks)}] --> collapse --> reduce --> answer",
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        meter = Meter(resources.dispatcher, request.limits, resources.emit)
        question_ids = encode_question(request, resources)
        chunks = _split(document, question_ids, resources)
        pieces, failed = await _map(document, chunks, question_ids, meter, resources)
        pieces = [piece for piece in pieces if not piece.is_empty]
        pieces = await _collapse(pieces, question_ids, meter, resources)
        pieces = [piece for piece in pieces if not piece.is_empty]
        text = await _reduce(pieces, question_ids, meter, resources) if pieces else ""
        probability = max((piece.score / 5 for piece in pieces), default=0.0) if text else 0.0
        return Answer(
            text=text,
            explanation="",
            found=bool(text) and "NO INFORMATION" not in text.upper(),
            confidence=confidence_of(probability),
            probability=probability,
            evidence=tuple(evidence for piece in pieces for evidence in piece.evidence) if text else (),
            coverage=coverage_of(chunks, failed),
            usage=dict(meter.usage),
            seconds=meter.seconds,
            total_seconds=meter.elapsed_s(),
            stopped_by=meter.stopped_by,
        )


def read_heading(text: str, heading: str) -> str:
    """What follows the last `heading:` up to the next heading, without markdown emphasis."""
    starts = list(re.finditer(rf"\**{heading}\**\s*:\**", text, re.IGNORECASE))
    if not starts:
        return ""
    rest = text[starts[-1].end() :]
    end = re.search(r"\n\s*\**(?:Extracted Information|Rationale|Answer|Confidence Score)\**\s*:", rest)
    return rest[: end.start() if end else None].strip().strip("*").strip()


def _call(stage: Stage, values: dict[str, Sequence[int]], resources: Resources, chunk_index: int | None = None) -> Call:
    ids = load_prompt("reference", stage.value).encode(resources.tokenizer, values)
    return Call(
        prompt=chat_prompt(resources.tokenizer, own=[ids]),
        sampling=Sampling(max_output_tokens=OUTPUT_TOKENS, temperature=TEMPERATURE, seed=chunk_index or 0),
        stage=stage,
        chunk_index=chunk_index,
    )


def _room_tokens(stage: Stage, question_ids: Sequence[int], resources: Resources) -> int:
    values: dict[str, Sequence[int]] = {"question": question_ids}
    values["chunk" if stage is Stage.MAP else "findings"] = ()
    fixed = len(_call(stage, values, resources).prompt.token_ids)
    return min(CALL_TOKENS, resources.budget.context_tokens) - fixed - OUTPUT_TOKENS


def _split(document: Document, question_ids: Sequence[int], resources: Resources) -> Sequence[Chunk]:
    return split_document(document, resources.tokenizer, _room_tokens(Stage.MAP, question_ids, resources))


async def _map(
    document: Document,
    chunks: Sequence[Chunk],
    question_ids: Sequence[int],
    meter: Meter,
    resources: Resources,
) -> tuple[list[_Piece], list[FailedChunk]]:
    calls = [
        _call(Stage.MAP, {"chunk": c.plain_token_ids, "question": question_ids}, resources, c.index) for c in chunks
    ]
    outcomes = [outcome async for outcome in meter.complete(calls)]
    pieces: list[_Piece] = []
    failed: list[FailedChunk] = []
    for chunk, outcome in zip(chunks, outcomes, strict=True):
        if isinstance(outcome, Completion):
            pieces.append(_Piece(text=outcome.text, evidence=_locate(document, chunk, outcome.text)))
        else:
            failed.append(failed_chunk(chunk, outcome))
    return pieces, failed


def _locate(document: Document, chunk: Chunk, text: str) -> tuple[Evidence, ...]:
    """The published system has no evidence; its extracted lines are located so that it can be compared."""
    lines = [line.strip(" -*\"'") for line in read_heading(text, "Extracted Information").splitlines()]
    located = [locate_quote(document, chunk, line) for line in lines if len(line) > 20]
    return tuple(evidence for evidence in located if evidence.span is not None)


async def _collapse(
    pieces: list[_Piece], question_ids: Sequence[int], meter: Meter, resources: Resources
) -> list[_Piece]:
    room = _room_tokens(Stage.COLLAPSE, question_ids, resources)
    for _ in range(MOST_ROUNDS):
        if _total_tokens(pieces, resources) <= room:
            return pieces
        groups = _greedy_groups(pieces, room, resources)
        calls = [
            _call(Stage.COLLAPSE, {"findings": _joined(group, resources), "question": question_ids}, resources)
            for group in groups
        ]
        outcomes: list[Outcome] = [outcome async for outcome in meter.complete(calls)]
        pieces = [
            _merge(group, outcome)
            for group, outcome in zip(groups, outcomes, strict=True)
            if not isinstance(outcome, CallFailed)
        ]
    raise CollapseStalled


def _merge(group: list[_Piece], outcome: Completion) -> _Piece:
    return _Piece(text=outcome.text, evidence=tuple(e for piece in group for e in piece.evidence))


def _greedy_groups(pieces: list[_Piece], room: int, resources: Resources) -> list[list[_Piece]]:
    groups: list[list[_Piece]] = [[]]
    tokens = 0
    for piece in pieces:
        size = _total_tokens([piece], resources)
        if groups[-1] and tokens + size > room:
            groups.append([])
            tokens = 0
        groups[-1].append(piece)
        tokens += size
    return groups


async def _reduce(pieces: list[_Piece], question_ids: Sequence[int], meter: Meter, resources: Resources) -> str:
    call = _call(Stage.REDUCE, {"findings": _joined(pieces, resources), "question": question_ids}, resources)
    async for outcome in meter.complete([resources.budget.prove(call)]):
        if isinstance(outcome, Completion):
            return read_heading(outcome.text, "Answer") or outcome.text.strip()
    return ""


def _joined(pieces: list[_Piece], resources: Resources) -> array[int]:
    text = "\n\n".join(f"Information of Chunk {index}:\n{piece.text.strip()}" for index, piece in enumerate(pieces))
    return resources.tokenizer.encode_content(text)


def _total_tokens(pieces: list[_Piece], resources: Resources) -> int:
    return len(_joined(pieces, resources))
