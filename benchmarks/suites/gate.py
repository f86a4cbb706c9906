"""The relevance gate over all chunks: does it rank the stating chunks first, and what may be left unread?

One line per question with the score of every chunk, so that any rule can be tried on it later without a model. One
question per document also maps every chunk: that gives the output tokens which a chunk left out saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.data.items import BenchDocument, BenchItem
from benchmarks.fit.gate import (
    LEXICAL_NATS,
    Fit,
    clear_score,
    combined,
    held_out_recall,
    measure_rule,
    row_auc,
    rules_to_compare,
)
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row, made_by
from benchmarks.harness.statistics import mean_estimate, wilson_low
from benchmarks.harness.suite import Bench, Options, Suite, task_name
from benchmarks.report.charts import Bar, BarPanel, draw_bars
from benchmarks.systems.model import Served
from pipeline.chunks.rank import score_words
from pipeline.chunks.split import Chunk, split_document
from pipeline.documents.document import Document, Span
from pipeline.findings.confidence import GateSettings
from pipeline.llm.complete import at_once, yes_score
from pipeline.llm.model import Call, CallFailed, Completion, Outcome
from pipeline.mapreduce.gate import gate_call, keep_chunks
from pipeline.mapreduce.map import map_call
from pipeline.run.request import Request
from pipeline.run.run import choose_task
from pipeline.tasks import load_task


async def run(bench: Bench) -> None:
    async with bench.serve() as served:
        resources = served.remembering
        chunk_tokens = bench.options.chunk_tokens or resources.chunk_tokens
        documents = bench.documents()
        with show_progress(sum(len(document.items) for document in documents), "questions") as advance:
            for document in documents:
                text = Document.from_text(document.text, document.name)
                chunks = split_document(text, resources.tokenizer, chunk_tokens)
                for item in document.items:
                    if not bench.results.has(item.id):
                        await _gate(bench, served, document, text, item, chunks)
                    advance()
                if not bench.results.has(f"map-{document.name}"):
                    await _map_all(bench, served, document, chunks)


async def _gate(
    bench: Bench,
    served: Served,
    document: BenchDocument,
    text: Document,
    item: BenchItem,
    chunks: Sequence[Chunk],
) -> None:
    tokenizer = served.remembering.tokenizer
    task = load_task(task_name(document))
    question = tokenizer.encode_content(item.question)
    outcomes = await _complete(served, [gate_call(chunk, question, task, tokenizer) for chunk in chunks])
    failed = [outcome for outcome in outcomes if isinstance(outcome, CallFailed)]
    if failed:
        bench.results.add_unscored(item.id, f"{len(failed)} calls failed: {failed[0].message}")
        return
    completions = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
    scores = [round(yes_score(completion), 4) for completion in completions]
    lexical = score_words(text, chunks, item.question)
    states = holding(item.spans, chunks)
    bench.results.add(
        item.id,
        kind=item.kind,
        language=item.language,
        real=item.from_real_text,
        question=item.question,
        scores=scores,
        lexical=[round(score, 4) for score in lexical],
        states=states,
        links=holding(item.link_spans, chunks),
        conflicts=holding(item.conflict_spans, chunks),
        computed_tokens=sum(c.usage.prompt_tokens - c.usage.cached_tokens for c in completions),
        chunk_seconds=round(sum(c.seconds for c in completions), 1),
    )
    ranked = sorted(range(len(scores)), key=lambda index: -scores[index])
    ranks = [ranked.index(index) + 1 for index in states]
    bench.say(f"{item.id} {item.kind}: {len(chunks)} chunks, best {max(scores):+.2f}, stating at rank {ranks}")


async def _map_all(bench: Bench, served: Served, document: BenchDocument, chunks: Sequence[Chunk]) -> None:
    tokenizer = served.remembering.tokenizer
    request = Request(question=document.items[0].question, task=task_name(document))
    task = choose_task(request, served.remembering)
    question = tokenizer.encode_content(request.question)
    calls = [map_call(chunk, question, task, request, tokenizer) for chunk in chunks]
    outcomes = await _complete(served, calls)
    tokens = [outcome.usage.output_tokens for outcome in outcomes if isinstance(outcome, Completion)]
    if not tokens:
        bench.results.add_unscored(f"map-{document.name}", "every map call failed")
        return
    bench.results.add(f"map-{document.name}", map_output_tokens=tokens)
    bench.say(f"{document.name}: {sum(tokens) / len(tokens):.0f} output tokens per mapped chunk")


async def _complete(served: Served, calls: Sequence[Call]) -> list[Outcome]:
    return await at_once(map(served.remembering.dispatcher.complete, calls))


def holding(spans: Sequence[Span], chunks: Sequence[Chunk]) -> list[int]:
    """Indices of the chunks that share text with any of the spans."""
    return [
        chunk.index
        for chunk in chunks
        if any(chunk.span.start < span.end and span.start < chunk.span.end for span in spans)
    ]


def report(header: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    questions = [row for row in rows if "scores" in row]
    mapped = [tokens for row in rows for tokens in row.get("map_output_tokens", [])]
    if not questions:
        return ["no question was scored"]
    lines = ["area under the ROC curve per question (mean, 95 % interval):"]
    answerable = [row for row in questions if not math.isnan(row_auc(row))]
    groups = [("all", answerable)]
    groups += [(k, [r for r in answerable if r["kind"] == k]) for k in ("lookup", "two_hop", "conflict")]
    groups += [("real text", [r for r in answerable if r["real"]])]
    groups += [(name, [r for r in answerable if r["language"] == name]) for name in ("en", "zh")]
    lines += [f"  {name:10} {mean_estimate([row_auc(r) for r in group])}" for name, group in groups if group]
    lines += ["", "the same with L nats for the lexically closest chunk, all questions:"]
    lines += [f"  L={nats:4.2f} {mean_estimate([row_auc(r, nats) for r in answerable])}" for nats in LEXICAL_NATS]
    best, rules = rules_to_compare(GateSettings(**header["gate"]), questions)
    lines += ["", "rule: at least K best, and all within M nats of the best, L nats for the closest words"]
    lines += [_rule_line(name, rule, questions) for name, rule in rules.items()]
    held_out = held_out_recall(questions, best.keep_at_least, best.lexical_nats)
    lines += [f"  K={best.keep_at_least} fitted without each document: recall on it {sum(held_out)}/{len(held_out)}"]
    links = [
        index in keep_chunks(dict(enumerate(combined(row, best.lexical_nats))), best.settings)
        for row in questions
        for index in row["links"]
    ]
    lines += [f"  K={best.keep_at_least} M={best.keep_margin:.2f}: linking chunks kept {sum(links)}/{len(links)}"]
    lines += ["", *_savings(best, mapped), "", *_recommended(questions, best)]
    return lines


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    questions = [row for row in rows if "scores" in row]
    found, kept = [], []
    for name, rule in rules_to_compare(GateSettings(**header["gate"]), questions)[1].items() if questions else ():
        states, shares = measure_rule(questions, rule)
        recall, share = sum(states) / max(1, len(states)), sum(shares) / len(shares)
        found.append(Bar(label=name, value=recall, note=f"{sum(states)} of {len(states)}"))
        kept.append(Bar(label=name, value=share, note=f"{share:.0%}"))
    panels = [
        BarPanel(title="chunks that state the answer and are kept", full=1.0, bars=found),
        BarPanel(title="chunks kept of all", full=1.0, bars=kept),
    ]
    return draw_bars(made_by(header), panels)


def _rule_line(name: str, rule: GateSettings, rows: Sequence[Row]) -> str:
    found, kept = measure_rule(rows, rule)
    recall = f"{sum(found)}/{len(found)} = {sum(found) / max(1, len(found)):.3f}"
    low = wilson_low(sum(found), len(found))
    return (
        f"  {name:8} L={rule.lexical_nats:4.2f} K={rule.keep_at_least} M={rule.keep_margin:5.2f}: "
        f"recall of stating chunks {recall} (at least {low:.3f}), "
        f"kept {sum(kept) / len(kept):.1%}"
    )


def _savings(fit: Fit, mapped: Sequence[int]) -> list[str]:
    """Gating costs one output token per chunk and saves a map output per chunk left out."""
    if not mapped:
        return ["decode tokens saved: unknown, no chunk was mapped"]
    per_map = sum(mapped) / len(mapped)
    saved = 1 - (1 + fit.kept_share * per_map) / per_map
    return [f"decode tokens saved against mapping every chunk: {saved:.1%} ({per_map:.0f} tokens per map output)"]


def _recommended(rows: Sequence[Row], fit: Fit) -> list[str]:
    values = [row_auc(row, fit.lexical_nats) for row in rows]
    mean_auc = mean_estimate([value for value in values if not math.isnan(value)]).value
    clear = clear_score(rows, fit.lexical_nats)
    if mean_auc < 0.85 or fit.kept_share > 0.8:
        return [
            f"# mean AUC {mean_auc:.2f}, {fit.kept_share:.0%} kept: too weak to be gated",
            "[gate]",
            "enabled = false",
        ]
    return [
        "[gate]",
        "enabled = true",
        f"lexical_nats = {fit.lexical_nats:g}",
        f"keep_margin = {fit.keep_margin:g}",
        f"keep_at_least = {fit.keep_at_least}",
        f"clear_score = {clear:.2f}" if clear is not None else "# clear_score: no score is clear; set it high",
    ]


SUITE = Suite(
    purpose="recall of the relevance gate, and the rule that keeps 99.5 % of the chunks that state an answer",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, documents=1, tokens=6_000, questions=4, languages=("en",)),
)
