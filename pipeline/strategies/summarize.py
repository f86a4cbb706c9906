"""Summarize every chunk, collapse the summaries until they fit, write the last one; and LangChain's schedule of it.

    document ─split─▶ chunks ─map─▶ summaries ─collapse, pass by pass─▶ summaries that fit ─reduce─▶ summary

After the map-reduce summarization of LangChain and LangGraph. `collapse_summaries.py` says where the loop departs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.answer import Answer
from pipeline.answer_in_one_call import answer_in_one_call, plan_one_call, whole_document
from pipeline.build_answer import build_answer
from pipeline.choose_chunks import choose_chunks
from pipeline.collapse_findings import MOST_EVIDENCE, spread_evidence
from pipeline.collapse_summaries import (
    MOST_PASSES,
    Summary,
    SummaryCollapse,
    collapse_summaries,
    read_text,
    reduce_call,
)
from pipeline.document import Document, Span
from pipeline.errors import CallerError
from pipeline.events import StageStarted
from pipeline.group_summaries import worst_passes
from pipeline.map_chunks import judge_finding, map_call, read_finding
from pipeline.map_every_chunk import Mapped, ReadChunk, map_every_chunk
from pipeline.meter import Meter
from pipeline.model import Call, CallFailed, Stage
from pipeline.parse_outcomes import complete_one
from pipeline.reduce_findings import NOTHING, Conclusion
from pipeline.run import Plan, Request, Resources
from pipeline.split_document import NO_CHUNK, Chunk
from pipeline.strategies.direct import GRAPH as DIRECT_GRAPH
from pipeline.strategies.direct import excess_tokens, whole_call
from pipeline.strategies.map_reduce import encode_question
from pipeline.tasks import Task, load_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How the calls follow one another."""

    name: str
    reason: str
    most_tokens: int | None = None
    """Summaries that take more are collapsed; None: what the model's context leaves."""
    chunk_tokens: int | None = None
    """None: what the model's catalogue entry says."""
    as_published: bool = False
    """Greedy groups one after another, a map call even for a single chunk, no trimming: an error at the last pass."""


OURS = Schedule(name="summarize", reason="every chunk is summarized, then the summaries are")
LANGCHAIN = Schedule(
    name="langchain",
    reason="LangGraph's published schedule, for comparison",
    most_tokens=1000,  # limit and chunk size of LangGraph's published guide
    chunk_tokens=1000,
    as_published=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one run knows before its first call."""

    request: Request
    task: Task
    chunks: Sequence[Chunk]
    calls: Sequence[Call]
    """One map call per chunk."""
    collapse: SummaryCollapse
    whole: Call | None
    """The one call that is enough, where a single chunk holds the document."""


class Summarize:
    """Map, collapse while too long, reduce."""

    def __init__(self, schedule: Schedule = OURS) -> None:
        self.name = schedule.name
        self._schedule = schedule

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = self._prepare(document, request, resources)
        n, task, collapse = len(run.chunks), run.task, run.collapse
        tokens = sum(len(chunk.plain_token_ids) for chunk in run.chunks)
        if run.whole is not None:
            return plan_one_call(self.name, "the document fits one chunk", run.whole, tokens, DIRECT_GRAPH)
        label = collapse.label_tokens()
        passes = worst_passes(
            task.map_output_tokens + label,
            n,
            task.collapse_output_tokens + label,
            limit=collapse.limit_tokens(),
            room=collapse.group_tokens(),
            most=MOST_PASSES,
            retried=not self._schedule.as_published,
        )
        collapses = sum(passes)
        last = len(reduce_call([], collapse).prompt.token_ids) + collapse.limit_tokens()
        mapped_tokens = sum(len(call.prompt.token_ids) for call in run.calls)
        return Plan(
            strategy=self.name,
            reason=self._schedule.reason,
            document_tokens=tokens,
            chunks=n,
            calls=n + collapses + 1,
            prompt_tokens=mapped_tokens + collapses * resources.budget.context_tokens + last,
            output_tokens=n * task.map_output_tokens
            + collapses * task.collapse_output_tokens
            + task.reduce_output_tokens,
            depth=2 + (collapses if self._schedule.as_published else 2 * len(passes)),
            graph=_graph(n),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        run = self._prepare(document, request, resources)
        if run.whole is not None:
            chunk = whole_document(document, resources.tokenizer)
            return await answer_in_one_call(document, chunk, run.whole, run.request, resources)
        # 1. Map.
        mapped = await map_every_chunk(
            run.chunks,
            lambda chunk: run.calls[chunk.index],
            lambda chunk, done: ReadChunk(
                finding=judge_finding(
                    read_finding(done, chunk, document, request.question, None), None, resources.calibration
                )
            ),
            run.collapse.meter,
            resources,
        )
        summaries = [
            Summary(
                token_ids=resources.tokenizer.encode_content(read.finding.answer),
                chunk_indices=read.finding.chunk_indices,
                evidence=read.finding.evidence,
                truncated=read.finding.truncated,
            )
            for read in mapped.read
        ]
        # 2. Collapse.
        summaries = await collapse_summaries(summaries, run.collapse)
        # 3. Reduce.
        conclusion = await self._conclude(summaries, mapped, run)
        return _answer(conclusion, summaries, mapped, run)

    def _prepare(self, document: Document, request: Request, resources: Resources) -> _Run:
        if request.choices:
            raise CallerError(f"The strategy {self.name} writes prose; it cannot choose between options.")
        schedule, task = self._schedule, load_task("summarization")
        request = replace(request, task=task.name, chunk_tokens=request.chunk_tokens or schedule.chunk_tokens)
        question_ids = encode_question(request, resources)
        tokenizer = resources.tokenizer
        fixed = len(map_call(NO_CHUNK, question_ids, task, request, tokenizer).prompt.token_ids)
        room = resources.budget.room_tokens(fixed_tokens=fixed, output_tokens=task.map_output_tokens)
        chunks = choose_chunks(document, request, resources, room)
        whole = whole_call(document, request, resources) if len(chunks) == 1 and not schedule.as_published else None
        collapse = SummaryCollapse(
            question_ids=question_ids,
            task=task,
            meter=Meter(resources.dispatcher, request.limits, resources.emit),
            resources=resources,
            most_tokens=schedule.most_tokens,
            as_published=schedule.as_published,
        )
        collapse.limit_tokens()  # a context too small for the last call is found before the first
        return _Run(
            request=request,
            task=task,
            chunks=chunks,
            calls=[map_call(chunk, question_ids, task, request, tokenizer) for chunk in chunks],
            collapse=collapse,
            whole=whole if whole is not None and excess_tokens(whole, resources) <= 0 else None,
        )

    async def _conclude(self, summaries: Sequence[Summary], mapped: Mapped, run: _Run) -> Conclusion:
        """The last call; none for a summary that stands alone, except as published."""
        if not summaries:
            return NOTHING
        collapse, text, warning = run.collapse, "", ""
        if len(summaries) > 1 or self._schedule.as_published:
            collapse.resources.emit(StageStarted(stage=Stage.REDUCE, calls=1))
            call = collapse.resources.budget.prove(reduce_call(summaries, collapse))
            outcome = await complete_one(call, read_text, collapse.meter)
            if not isinstance(outcome, CallFailed):
                text = outcome.text("answer")
                warning = "The summary was cut off at its longest." if text and outcome.truncated else ""
            if not text:
                warning = "The last step failed; these are the summaries of the parts."
        if not text:
            tokenizer = collapse.resources.tokenizer
            text = "\n\n".join(tokenizer.decode(summary.token_ids).strip() for summary in summaries)
        quotes = [quote for summary in summaries for quote in summary.evidence]
        return Conclusion(
            text=text,
            explanation="",
            probability=max(read.finding.probability for read in mapped.read),
            evidence=spread_evidence(quotes, MOST_EVIDENCE),
            warning=warning,
        )


def joined_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Ascending spans, with those that follow one another joined."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].end == span.start:
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return tuple(joined)


def _answer(conclusion: Conclusion, summaries: Sequence[Summary], mapped: Mapped, run: _Run) -> Answer:
    collapse = run.collapse
    warnings: list[str] = []
    if collapse.failed:
        warnings.append(f"{len(collapse.failed)} collapse calls failed; what they were to merge was trimmed instead.")
    if truncated := sum(summary.truncated for summary in summaries):
        warnings.append(f"{truncated} of {len(summaries)} last summaries were cut to fit; some of their text is lost.")
    if collapse.dropped:
        warnings.append(f"{collapse.dropped} summaries were left out, because they could not be made to fit.")
    used = sorted({index for summary in summaries for index in summary.chunk_indices})
    return build_answer(
        conclusion,
        replace(mapped.coverage, findings_dropped=collapse.dropped),
        collapse.meter,
        warnings=warnings,
        made_from=joined_spans(run.chunks[index].span for index in used),
    )


def _graph(chunks: int) -> str:
    return (
        f"flowchart LR\n    document --> split[{chunks} chunks] --> map[summarize ×{chunks}] --> reduce[last summary]"
        " --> answer\n    map -. too long .-> collapse[collapse groups] -. fits .-> reduce\n"
        "    collapse -. still too long .-> collapse"
    )
