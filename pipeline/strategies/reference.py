"""Reference mode: the schedule of the published LLM×MapReduce (arXiv 2410.09342), to measure every gain against.

Calls of 4,096 tokens, no overlap, free text under four headings, temperature 0.7, a barrier after every stage, greedy
grouping, no gate, no schema, no pointers. The prompts are our own. Departs only where the public code is broken
(it fails on an empty result list, loops when a round does not shrink): such cases end in a visible failure instead.

Two switches of the request take its ideas away, for the ablation of the paper's Table 2, which has the published
system without confidence calibration, and without both. The prompts of its ablation are not published.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.chunks.split import Chunk, split_document
from pipeline.documents.document import Document
from pipeline.errors import CollapseStalled
from pipeline.findings.answer import NOTHING, Answer, Conclusion
from pipeline.findings.evidence import locate_quote
from pipeline.findings.finding import Evidence
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.shared.grouping import greedy_groups
from pipeline.tasks import load_prompt

CALL_TOKENS = 4096
OUTPUT_TOKENS = 300
TEMPERATURE = 0.7
MAX_ROUNDS = 8


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """The state between two stages."""

    pieces: tuple[_Piece, ...]


class Reference:
    """Map, barrier, collapse, barrier, reduce."""

    name = "reference"
    steps = ("collapse", "reduce")
    options = ("use_structure", "use_scores")

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = _begin(document, request, resources)
        chunks = run.chunks
        collapses = 2 * len(chunks) * OUTPUT_TOKENS // CALL_TOKENS
        calls = len(chunks) + collapses + 1
        return Plan(
            strategy=self.name,
            reason="the published schedule, for comparison",
            document_tokens=run.document_tokens(),
            chunks=len(chunks),
            calls=calls,
            prompt_tokens=calls * CALL_TOKENS,
            output_tokens=calls * OUTPUT_TOKENS,
            depth=2 + (1 if collapses else 0),
            graph=f"flowchart LR\n    document --> map[map ×{len(chunks)}] --> collapse --> reduce --> answer",
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        run = _begin(document, request, resources)
        pieces = [piece for piece in await _map(run) if not piece.is_empty]
        pieces = [piece for piece in await _collapse(pieces, run) if not piece.is_empty]
        pieces = list(run.step("reduce", _Pieces(pieces=tuple(pieces))).pieces)
        pieces = await _collapse(pieces, run)  # by hand more may be written than fits
        text = await _reduce(pieces, run) if pieces else ""
        probability = max((piece.score / 5 for piece in pieces), default=0.0)
        evidence = tuple(evidence for piece in pieces for evidence in piece.evidence)
        return run.account.answer(
            Conclusion(text=text, explanation="", probability=probability, evidence=evidence) if text else NOTHING
        )


def read_heading(text: str, heading: str) -> str:
    """What follows the last `heading:`, or markdown heading, up to the next one, without markdown emphasis."""
    starting = rf"\**{heading}\**\s*:\**|^#+ *\**{heading}[ *:]*$"
    starts = list(re.finditer(starting, text, re.IGNORECASE | re.MULTILINE))
    if not starts:
        return ""
    rest = text[starts[-1].end() :]
    names = "(?:Extracted Information|Rationale|Answer|Confidence Score)"
    end = re.search(rf"\n\s*(?:#+ *)?\**{names}\**\s*:|\n#+ *\**{names}[ *:]*$", rest, re.MULTILINE)
    return rest[: end.start() if end else None].strip().strip("*").strip()


def _begin(document: Document, request: Request, resources: Resources) -> Run:
    run = begin_run(document, request, resources)
    run.read_as(split_document(document, run.tokenizer, _room_tokens(Stage.MAP, run)))
    return run


def _call(stage: Stage, values: dict[str, Sequence[int]], run: Run, chunk_index: int | None = None) -> Call:
    # Not `Run.prompt`: what is compared with stays as it was measured, in English.
    ids = load_prompt("reference", stage.value + _without(run.request)).encode(
        run.tokenizer, values | {"question": run.question_ids}
    )
    return Call(
        prompt=chat_prompt(run.tokenizer, own=[ids]),
        sampling=Sampling(max_output_tokens=OUTPUT_TOKENS, temperature=TEMPERATURE, seed=chunk_index or 0),
        stage=stage,
        chunk_index=chunk_index,
    )


def _without(request: Request) -> str:
    """What a prompt's name says of the ideas that are switched off."""
    if request.use_structure:
        return "" if request.use_scores else "_unscored"
    return "_unstructured" if request.use_scores else "_plain"


def _room_tokens(stage: Stage, run: Run) -> int:
    fixed = len(_call(stage, {"chunk" if stage is Stage.MAP else "findings": ()}, run).prompt.token_ids)
    return min(CALL_TOKENS, run.resources.budget.context_tokens) - fixed - OUTPUT_TOKENS


async def _map(run: Run) -> list[_Piece]:
    calls = [_call(Stage.MAP, {"chunk": chunk.plain_token_ids}, run, chunk.index) for chunk in run.chunks]
    outcomes = await at_once(map(run.meter.complete, calls))
    pieces: list[_Piece] = []
    for chunk, outcome in zip(run.chunks, outcomes, strict=True):
        if isinstance(outcome, Completion):
            pieces.append(_Piece(text=outcome.text, evidence=_locate(run.document, chunk, outcome.text)))
            run.account.add_read(chunk.index, None)
        else:
            run.account.add_failed(chunk.index, outcome)
    return pieces


def _locate(document: Document, chunk: Chunk, text: str) -> tuple[Evidence, ...]:
    """The published system has no evidence; its extracted lines are located so that it can be compared."""
    lines = [line.strip(" -*\"'") for line in read_heading(text, "Extracted Information").splitlines()]
    located = [locate_quote(document, chunk, line) for line in lines if len(line) > 20]
    return tuple(evidence for evidence in located if evidence.span is not None)


async def _collapse(pieces: list[_Piece], run: Run) -> list[_Piece]:
    room = _room_tokens(Stage.COLLAPSE, run)
    for _ in range(MAX_ROUNDS):
        if _total_tokens(pieces, run) <= room:
            return pieces
        pieces = list(run.step("collapse", _Pieces(pieces=tuple(pieces))).pieces)
        sizes = [_total_tokens([piece], run) for piece in pieces]
        groups = [[pieces[index] for index in group] for group in greedy_groups(sizes, room)]
        calls = [_call(Stage.COLLAPSE, {"findings": _joined(group, run)}, run) for group in groups]
        outcomes = await at_once(map(run.meter.complete, calls))
        failed = [outcome for outcome in outcomes if isinstance(outcome, CallFailed)]
        if failed:
            run.account.warnings.append(
                f"{len(failed)} collapse calls failed, and what they were to merge is lost: {failed[0].message}"
            )
        pieces = [
            _merge(group, outcome)
            for group, outcome in zip(groups, outcomes, strict=True)
            if not isinstance(outcome, CallFailed)
        ]
    raise CollapseStalled


def _merge(group: list[_Piece], outcome: Completion) -> _Piece:
    return _Piece(text=outcome.text, evidence=tuple(e for piece in group for e in piece.evidence))


async def _reduce(pieces: list[_Piece], run: Run) -> str:
    """The answer; empty if there is none, or if the call failed, which a warning says."""
    call = _call(Stage.REDUCE, {"findings": _joined(pieces, run)}, run)
    outcome = await run.meter.complete(run.resources.budget.check_fits(call))
    if isinstance(outcome, CallFailed):
        run.account.warnings.append(f"The last step failed, so there is no answer: {outcome.message}")
        return ""
    text = read_heading(outcome.text, "Answer") or outcome.text.strip()
    return "" if "NO INFORMATION" in text.upper() else text


def _joined(pieces: list[_Piece], run: Run) -> array[int]:
    text = "\n\n".join(f"Information of Chunk {index}:\n{piece.text.strip()}" for index, piece in enumerate(pieces))
    return run.tokenizer.encode_content(text)


def _total_tokens(pieces: list[_Piece], run: Run) -> int:
    return len(_joined(pieces, run))
