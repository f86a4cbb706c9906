"""Needles by depth and length: is each fact in the answer, and does the evidence point at its sentence?

Both are checked by code. Calls are remembered, so times are those of runs that found none remembered.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product

from benchmarks.data.needles import NeedleDocument, make_needle_document
from benchmarks.data.patterns import holds, normalise
from benchmarks.data.score import is_quoted
from benchmarks.harness.measure import MeasuredRun, measure_run, quoted_spans
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row
from benchmarks.harness.statistics import mean_estimate
from benchmarks.harness.suite import Bench, Options, Suite, take_turns
from benchmarks.report.charts import Grid, draw_grids
from pipeline.documents.document import Document
from pipeline.run.request import Request
from pipeline.run.strategy import Resources


async def run(bench: Bench) -> None:
    """Strategies take turns on each document and which goes first rotates: later ones find it in the prefix cache."""
    options = bench.options
    strategies = options.strategies or ("auto",)
    documents = list(product(options.lengths, options.depths, range(options.repeats)))
    async with bench.serve() as served:
        with show_progress(len(documents) * len(strategies), "needles") as advance:
            for number, (tokens, depth, repeat) in enumerate(documents):
                for strategy in take_turns(strategies, number):
                    key = f"{strategy}/{tokens}/{depth}/{repeat}"
                    if not bench.results.has(key):
                        made = make_needle_document(options.seed, tokens, depth, options.needles, repeat)
                        await _ask(bench, served.remembering, key, made)
                    advance()


async def _ask(bench: Bench, resources: Resources, key: str, made: NeedleDocument) -> None:
    strategy, tokens, depth, _ = key.split("/")
    request = Request(
        question=made.question,
        task="question_answering" if len(made.facts) == 1 else "aggregation",
        strategy=strategy,
        chunk_tokens=bench.options.chunk_tokens,
    )
    measured = await measure_run(bench, Document.from_text(made.text, key), request, resources)
    if isinstance(measured, str):
        bench.results.add_unscored(key, measured)
        return
    facts, evidence = check_facts(made, measured), check_evidence(made, measured)
    bench.results.add(
        key,
        strategy=strategy,
        tokens=int(tokens),
        depth=int(depth),
        facts=facts,
        evidence=evidence,
        accepted=[forms[0] for forms in made.facts],
        answer=measured.answer.text[:200],
        probability=round(measured.answer.probability, 4),
        **measured.row(),
    )
    bench.say(f"{key}: {sum(facts)}/{len(facts)} facts, {sum(evidence)}/{len(evidence)} in the evidence")


def check_facts(made: NeedleDocument, measured: MeasuredRun) -> list[bool]:
    """Per needle, whether the answer names its value."""
    answer = normalise(measured.answer.text)
    return [any(holds(answer, form) for form in forms) for forms in made.facts]


def check_evidence(made: NeedleDocument, measured: MeasuredRun) -> list[bool]:
    """Per needle, whether a located quote overlaps its sentence."""
    quoted = quoted_spans(measured.answer.evidence)
    return [is_quoted(span, quoted) for span in made.spans]


def report(header: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    lines = [f"{header['settings']['needles']} needles in a document, seed {header['settings']['seed']}; means:"]
    lines.append(
        f"{'':28} {'facts':>6} {'evidence':>9} {'calls':>6} {'prompt':>8} {'computed':>9} {'output':>7} {'s':>7}"
    )
    strategies = dict.fromkeys(row["strategy"] for row in rows)
    lines += [_price_line(name, [row for row in rows if row["strategy"] == name]) for name in strategies]
    for strategy in strategies:
        own = [row for row in rows if row["strategy"] == strategy]
        for what in ("facts", "evidence"):
            lines += ["", f"{strategy}, {what} found: {mean_estimate([_share(row[what]) for row in own])}"]
            lines += _table(_panel("", header, own, what))
        missed = sum(key.startswith(f"{strategy}/") for key in failed)
        lines.append(f"documents scored {len(own)}, unscored {missed}")
    return lines


def _price_line(strategy: str, rows: Sequence[Row]) -> str:
    """Seconds over the documents of which no call was remembered."""
    timed = [row["seconds"] for row in rows if row["seconds"] is not None]
    seconds = f"{statistics.fmean(timed):.1f}" if timed else "-"
    facts, evidence = (statistics.fmean(_share(row[what]) for row in rows) for what in ("facts", "evidence"))
    calls, prompt, cached, output = (
        statistics.fmean(row[name] for row in rows)
        for name in ("calls", "prompt_tokens", "cached_tokens", "output_tokens")
    )
    return (
        f"{strategy:28} {facts:>6.2f} {evidence:>9.2f} {calls:>6.1f} {prompt:>8,.0f} {prompt - cached:>9,.0f} "
        f"{output:>7,.0f} {seconds:>7}"
    )


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    strategies = dict.fromkeys(row["strategy"] for row in rows)
    panels = [
        _panel(f"{strategy}: {what} found", header, [row for row in rows if row["strategy"] == strategy], what)
        for strategy in strategies or ("nothing measured",)
        for what in ("facts", "evidence")
    ]
    title = f"{header['model']['name']}, {header['settings']['needles']} needle(s), commit {header['commit'][:12]}"
    return draw_grids(title, panels, "tokens (approximate)", "depth")


def _panel(title: str, header: Row, rows: Sequence[Row], what: str) -> Grid:
    lengths, depths = header["settings"]["lengths"], header["settings"]["depths"]
    cells = {
        (_thousands(length), f"{depth} %"): [
            _share(row[what]) for row in rows if row["tokens"] == length and row["depth"] == depth
        ]
        for length, depth in product(lengths, depths)
    }
    return Grid(
        title=title,
        columns=[_thousands(length) for length in lengths],
        rows=[f"{depth} %" for depth in depths],
        values={place: statistics.fmean(shares) for place, shares in cells.items() if shares},
    )


def _table(panel: Grid) -> list[str]:
    lines = [f"{'depth':>6} " + " ".join(f"{column:>6}" for column in panel.columns)]
    for row in panel.rows:
        values = [panel.values.get((column, row)) for column in panel.columns]
        lines.append(f"{row:>6} " + " ".join(f"{'-' if value is None else f'{value:.2f}':>6}" for value in values))
    return lines


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:g}K"


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


SUITE = Suite(
    purpose="facts at every depth of documents of 8K to 1,280K tokens; ends with a heat map",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, lengths=(4_000, 8_000), depths=(0, 50, 100)),
)
