"""Chain-of-Agents (arXiv 2406.02818): workers hand on notes from part to part, a manager answers from the last ones.

    chunk 1 ─worker─▶ unit 1 ─┐
    chunk 2 ──────────────────┴─worker─▶ unit 2 ─ ... ─▶ unit n ─manager─▶ answer

Departs from the paper (docs/strategies.md says why): the communication unit is bounded and its room reserved, a
failing worker passes it on and its chunk is reported, and workers point at sentences.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.chunks.split import NO_CHUNK
from pipeline.documents.document import Document
from pipeline.errors import MalformedOutput
from pipeline.findings.answer import NOTHING, Answer, Conclusion, conclude_from_one
from pipeline.findings.finding import Finding, Findings
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import PromptTemplate, chat_prompt
from pipeline.llm.schema import TEXT, object_schema, parse_fields, whole_number
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.chain_of_agents.workers import (
    Barrier,
    follow_path,
    largest_chunk_tokens,
    worker_call,
)
from pipeline.strategies.shared.notes import REPAIRS, Notes, NotesBudget, cut_text
from pipeline.text import answer_key

MAX_UNIT_TOKENS = 1024
"""Of a communication unit, as in the paper; in a context under 8,192 an eighth of it."""
CANDIDATE_TOKENS = 200
"""Of one path's answer and explanation before the judge."""
JUDGE_OUTPUT_TOKENS = 120

Order = Literal["ltr", "rtl"] | int
"""First to last, last to first, or the permutation that this seed gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOfAgents:
    """One path per order; several are independent, and the vote or the judge chooses among their answers."""

    name: str = "chain_of_agents"
    orders: tuple[Order, ...] = ("ltr",)
    selector: Literal["vote", "judge"] = "vote"
    steps = ("worker", "manager", "select")
    options = CHUNK_OPTIONS

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        keeper = _begin(document, request, resources)
        run, n = keeper.run, len(keeper.run.chunks)
        paths = len(chain_orders(n, self.orders))
        judged = int(self.selector == "judge" and paths > 1)
        unit = keeper.max_tokens
        worker_output = worker_call(keeper, NO_CHUNK, Notes()).sampling.max_output_tokens
        reading = sum(len(worker_call(keeper, chunk, Notes()).prompt.token_ids) + unit for chunk in run.chunks)
        condensing = n * (worker_output + len(run.question_ids) + 200)
        managing = len(keeper.answer_call(Notes(), _manager_prompt(run)).prompt.token_ids) + unit
        return Plan(
            strategy=self.name,
            reason=f"{paths} path{'s' if paths > 1 else ''} of {n} workers and a manager; up to {n} calls of each "
            "path are for notes that grow too long",
            document_tokens=run.document_tokens(),
            chunks=n,
            calls=paths * (2 * n + 1) + judged,
            prompt_tokens=paths * (reading + condensing + managing) + judged * _most_judge_tokens(run, paths),
            output_tokens=paths * (n * 2 * worker_output + run.task.reduce_output_tokens)
            + judged * JUDGE_OUTPUT_TOKENS,
            depth=2 * n + 1 + judged,
            graph=_graph(n, paths, self.selector),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        keeper = _begin(document, request, resources)
        run = keeper.run
        if not run.chunks:
            return run.account.answer(NOTHING)
        orders = chain_orders(len(run.chunks), self.orders)
        resources.emit(StageStarted(stage=Stage.MAP, calls=len(orders) * len(run.chunks)))
        meeting = Barrier(run, len(orders), len(run.chunks))
        async with asyncio.TaskGroup() as group:
            paths = [
                group.create_task(_conclude_path(keeper, path, order, meeting)) for path, order in enumerate(orders)
            ]
        conclusions = [path.result() for path in paths]
        return run.account.answer(await _select(conclusions, self.selector, run))


def chain_orders(chunks: int, orders: Sequence[Order]) -> list[list[int]]:
    """Chunk indices of each path; orders that come out the same, as in a short document, are taken once."""
    paths: list[list[int]] = []
    for order in orders:
        if order == "ltr":
            path = list(range(chunks))
        elif order == "rtl":
            path = list(reversed(range(chunks)))
        else:
            path = _permutation(chunks, order)
        if path not in paths:
            paths.append(path)
    return paths


def _permutation(chunks: int, seed: int) -> list[int]:
    """By hash, so that it is the same in every version of Python."""
    return sorted(range(chunks), key=lambda index: hashlib.sha256(f"{seed}\0{index}".encode()).digest())


def _begin(document: Document, request: Request, resources: Resources) -> NotesBudget:
    """Everything that needs no model; a context too small for any of the prompts is found here."""
    run = begin_run(document, request, resources)
    keeper = NotesBudget(run=run, max_tokens=min(MAX_UNIT_TOKENS, resources.budget.context_tokens // 8))
    room = largest_chunk_tokens(keeper)
    run.split(room, usual_tokens=room)
    keeper.check_answer_fits(_manager_prompt(run))
    return keeper


def _manager_prompt(run: Run) -> PromptTemplate:
    return run.prompt("chain_of_agents", "manager_summary" if run.task.free_text else "manager")


async def _conclude_path(keeper: NotesBudget, path: int, order: Sequence[int], meeting: Barrier) -> Conclusion:
    """The manager is not called when no worker handed anything on."""
    unit = await follow_path(keeper, path, order, meeting)
    if not unit.text:
        return NOTHING
    conclusion = await keeper.answer(unit, _manager_prompt(keeper.run))
    keeper.run.account.show(conclusion, "the first path to its end")
    return conclusion


async def _select(conclusions: Sequence[Conclusion], selector: str, run: Run) -> Conclusion:
    """A path that found nothing has no vote: the others may have kept what it lost."""
    found = [conclusion for conclusion in conclusions if conclusion.text]
    if len(conclusions) > 1:
        found = _stepped(found, run)
    if not found:
        return conclusions[0]
    votes = Counter(answer_key(conclusion.text) for conclusion in found)
    best = max(found, key=lambda conclusion: votes[answer_key(conclusion.text)])  # the first among equals
    if selector == "judge" and len(votes) > 1:
        choice = await _judge(found, run)
        best = found[choice] if choice is not None else best
    others = [_as_finding(other) for other in found if other is not best]
    return conclude_from_one(_as_finding(best), others, best.warning)


def _stepped(found: list[Conclusion], run: Run) -> list[Conclusion]:
    """The same, unless a person wants other candidates."""
    before = tuple(_as_finding(conclusion) for conclusion in found)
    after = run.step("select", Findings(findings=before)).findings
    return found if after == before else [conclude_from_one(finding) for finding in after]


def _as_finding(conclusion: Conclusion) -> Finding:
    return Finding(
        chunk_indices=tuple(sorted({evidence.chunk_index for evidence in conclusion.evidence})),
        evidence=conclusion.evidence,
        rationale=conclusion.explanation,
        answer=conclusion.text,
        stated_confidence=conclusion.confidence,
        probability=conclusion.probability,
    )


async def _judge(found: Sequence[Conclusion], run: Run) -> int | None:
    """Place of the chosen one; None if the judge fails, and a warning says that the vote decided."""

    def read(completion: Completion) -> int:
        number = parse_fields(completion).number("candidate") or 0
        if not 1 <= number <= len(found):
            raise MalformedOutput(f"There is no candidate {number}.")
        return number - 1

    result = await complete_parsed(_judge_call(run, found), read, run.meter, repairs=REPAIRS)
    if isinstance(result, CallFailed):
        run.account.warnings.append(f"The judge failed, so the vote decided: {result.message}")
        return None
    return result


def _judge_call(run: Run, found: Sequence[Conclusion]) -> Call:
    lines = [
        f"Answer {number}: {cut_text(f'{one.text} ({one.explanation})', CANDIDATE_TOKENS, run.tokenizer)}"
        for number, one in enumerate(found, start=1)
    ]
    values = {"candidates": run.tokenizer.encode_content("\n".join(lines)), "question": run.question_ids}
    schema = object_schema(reason=TEXT, candidate=whole_number(len(found), minimum=1))
    prompt = chat_prompt(run.tokenizer, own=[run.prompt("chain_of_agents", "judge").encode(run.tokenizer, values)])
    sampling = Sampling(max_output_tokens=JUDGE_OUTPUT_TOKENS, json_schema=schema)
    return run.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))


def _most_judge_tokens(run: Run, paths: int) -> int:
    return len(_judge_call(run, [NOTHING] * paths).prompt.token_ids) + paths * CANDIDATE_TOKENS


def _graph(chunks: int, paths: int, selector: str) -> str:
    """The chain as Mermaid text; the links between the first and the last worker are left out."""
    lines = ["flowchart LR", f"    document --> split[{chunks} chunks]"]
    for path in range(1, paths + 1):
        first, last, manager = f"first{path}[worker 1]", f"last{path}[worker {chunks}]", f"manager{path}[manager]"
        lines.append(f"    split --> {first} -- notes --> {last} -- notes --> {manager}")
        lines.append(
            f"    manager{path} --> " + (f"select[{selector}]" if paths > 1 else "answer[answer with evidence]")
        )
    lines += ["    select --> answer[answer with evidence]"] if paths > 1 else []
    return "\n".join(lines)
