"""Summarize every chunk, collapse the summaries until they fit, write the last one; and LangChain's schedule of it.

    document ─split─▶ chunks ─map─▶ summaries ─collapse, pass by pass─▶ summaries that fit ─reduce─▶ summary

After the map-reduce summarization of LangChain and LangGraph. `collapse.py` says where the loop departs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.chunks.split import NO_CHUNK
from pipeline.documents.document import Document, Span
from pipeline.errors import CallerError
from pipeline.findings.answer import NOTHING, Answer, Conclusion
from pipeline.findings.evidence import MAX_EVIDENCE, spread_evidence
from pipeline.findings.finding import Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Stage
from pipeline.llm.schema import parse_fields
from pipeline.mapreduce.map import map_call, read_finding
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.direct import GRAPH as DIRECT_GRAPH
from pipeline.strategies.direct import answer_in_one_call, excess_tokens, plan_one_call, whole_call, whole_document
from pipeline.strategies.shared.grouping import worst_passes
from pipeline.strategies.shared.map_every_chunk import map_every_chunk
from pipeline.strategies.summarize.collapse import (
    MAX_PASSES,
    Summaries,
    Summary,
    SummaryCollapse,
    collapse_summaries,
    reduce_call,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How the calls follow one another."""

    name: str
    reason: str
    max_tokens: int | None = None
    """Summaries that take more are collapsed; None: what the model's context leaves."""
    chunk_tokens: int | None = None
    """None: what the model's catalogue entry says."""
    as_published: bool = False
    """Greedy groups one after another, a map call even for a single chunk, no trimming: an error at the last pass."""


OURS = Schedule(name="summarize", reason="every chunk is summarized, then the summaries are")
LANGCHAIN = Schedule(
    name="langchain",
    reason="LangGraph's published schedule, for comparison",
    max_tokens=1000,  # limit and chunk size of LangGraph's published guide
    chunk_tokens=1000,
    as_published=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What is known before the first call."""

    run: Run
    calls: Sequence[Call]
    """One map call per chunk."""
    collapse: SummaryCollapse
    whole: Call | None
    """The one call that is enough, where a single chunk holds the document."""


class Summarize:
    """Map, collapse while too long, reduce."""

    steps = ("collapse", "reduce", "answer")
    options = (*CHUNK_OPTIONS, "copy_quotes", "use_rationale")
    """The last for a document of one chunk."""

    def __init__(self, schedule: Schedule = OURS) -> None:
        self.name = schedule.name
        self._schedule = schedule

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        prepared = self._prepare(document, request, resources)
        run, collapse, task = prepared.run, prepared.collapse, prepared.run.task
        n, tokens = len(run.chunks), run.document_tokens()
        if prepared.whole is not None:
            return plan_one_call(self.name, "the document fits one chunk", prepared.whole, tokens, DIRECT_GRAPH)
        label = collapse.label_tokens()
        passes = worst_passes(
            task.map_output_tokens + label,
            n,
            task.collapse_output_tokens + label,
            limit=collapse.limit_tokens(),
            room=collapse.group_tokens(),
            max_rounds=MAX_PASSES,
            retried=not self._schedule.as_published,
        )
        collapses = sum(passes)
        last = len(reduce_call([], collapse).prompt.token_ids) + collapse.limit_tokens()
        mapped_tokens = sum(len(call.prompt.token_ids) for call in prepared.calls)
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
        prepared = self._prepare(document, request, resources)
        run, collapse = prepared.run, prepared.collapse
        if prepared.whole is not None:
            chunk = whole_document(document, resources.tokenizer)
            return await answer_in_one_call(document, chunk, prepared.whole, run.request, resources)
        # 1. Map.
        resources.emit(StageStarted(stage=Stage.MAP, calls=len(run.chunks)))
        said = await map_every_chunk(
            run,
            lambda chunk: prepared.calls[chunk.index],
            lambda chunk, completion: run.judge(read_finding(completion, chunk, document, request.question, None)),
        )
        summaries = [
            Summary(
                token_ids=resources.tokenizer.encode_content(finding.answer),
                chunk_indices=finding.chunk_indices,
                evidence=finding.evidence,
                truncated=finding.truncated,
            )
            for finding in said.values()
        ]
        # 2. Collapse.
        summaries = await collapse_summaries(summaries, collapse)
        # 3. Reduce. By hand more may be written than fits.
        summaries = list(run.step("reduce", Summaries(summaries=tuple(summaries))).summaries)
        summaries = await collapse_summaries(summaries, collapse)
        conclusion = await self._conclude(summaries, list(said.values()), collapse)
        run.account.warnings += _warnings(summaries, collapse)
        used = sorted({index for summary in summaries for index in summary.chunk_indices})
        return run.account.answer(
            conclusion,
            coverage=replace(run.account.coverage(), findings_dropped=collapse.dropped),
            made_from=joined_spans(run.chunks[index].span for index in used),
        )

    def _prepare(self, document: Document, request: Request, resources: Resources) -> _Prepared:
        if request.choices:
            raise CallerError(f"The strategy {self.name} writes prose; it cannot choose between options.")
        schedule = self._schedule
        run = begin_run(document, replace(request, task="summarization"), resources)
        empty = map_call(NO_CHUNK, run.question_ids, run.task, run.request, run.tokenizer)
        room = resources.budget.room_tokens(
            fixed_tokens=len(empty.prompt.token_ids), output_tokens=empty.sampling.max_output_tokens
        )
        run.split(room, usual_tokens=schedule.chunk_tokens)
        alone = len(run.chunks) == 1 and not schedule.as_published
        whole = whole_call(document, run.request, resources) if alone else None
        collapse = SummaryCollapse(run=run, max_tokens=schedule.max_tokens, as_published=schedule.as_published)
        collapse.limit_tokens()  # a context too small for the last call is found before the first
        return _Prepared(
            run=run,
            calls=[map_call(chunk, run.question_ids, run.task, run.request, run.tokenizer) for chunk in run.chunks],
            collapse=collapse,
            whole=whole if whole is not None and excess_tokens(whole, resources) <= 0 else None,
        )

    async def _conclude(
        self, summaries: Sequence[Summary], said: Sequence[Finding], collapse: SummaryCollapse
    ) -> Conclusion:
        """The last call; none for a summary that stands alone, except as published."""
        if not summaries:
            return NOTHING
        run, text, warning = collapse.run, "", ""
        if len(summaries) > 1 or self._schedule.as_published:
            run.resources.emit(StageStarted(stage=Stage.REDUCE, calls=1))
            call = run.resources.budget.check_fits(reduce_call(summaries, collapse))
            outcome = await complete_parsed(call, parse_fields, run.meter)
            if not isinstance(outcome, CallFailed):
                text = outcome.text("answer")
                warning = "The summary was cut off at its longest." if text and outcome.truncated else ""
            if not text:
                warning = "The last step failed; these are the summaries of the parts."
        if not text:
            text = "\n\n".join(run.tokenizer.decode(summary.token_ids).strip() for summary in summaries)
        quotes = [quote for summary in summaries for quote in summary.evidence]
        return Conclusion(
            text=text,
            explanation="",
            probability=max((finding.probability for finding in said), default=0.0),
            evidence=spread_evidence(quotes, MAX_EVIDENCE),
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


def _warnings(summaries: Sequence[Summary], collapse: SummaryCollapse) -> list[str]:
    warnings: list[str] = []
    if collapse.failed:
        warnings.append(f"{len(collapse.failed)} collapse calls failed; what they were to merge was trimmed instead.")
    if truncated := sum(summary.truncated for summary in summaries):
        warnings.append(f"{truncated} of {len(summaries)} last summaries were cut to fit; some of their text is lost.")
    if collapse.dropped:
        warnings.append(f"{collapse.dropped} summaries were left out, because they could not be made to fit.")
    return warnings


def _graph(chunks: int) -> str:
    return (
        f"flowchart LR\n    document --> split[{chunks} chunks] --> map[summarize ×{chunks}] --> reduce[last summary]"
        " --> answer\n    map -. too long .-> collapse[collapse groups] -. fits .-> reduce\n"
        "    collapse -. still too long .-> collapse"
    )
