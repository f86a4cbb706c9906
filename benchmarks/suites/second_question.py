"""What a warm document is worth: the second question over the first, the first provisional answer over the whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.data.items import BenchDocument
from benchmarks.data.question_set import make_documents
from benchmarks.data.score import score_answer
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row
from benchmarks.harness.statistics import spread
from benchmarks.harness.suite import Bench, Options, Suite, task_name
from benchmarks.report.charts import BarPanel, draw_bars, median_bar
from benchmarks.systems.model import Served
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.front_door import ask
from pipeline.run.events import Event, Provisional
from pipeline.run.request import Request


async def run(bench: Bench) -> None:
    """Only questions that have an answer: a search that finds nothing has no first answer to time."""
    async with bench.serve() as served:
        warm_up = make_documents(bench.options.seed + 1, 1, 1_500, 2, ("en",))[0]
        await _timed(served, warm_up, warm_up.items[0].question)
        documents = bench.documents()
        with show_progress(len(documents), "documents") as advance:
            for document in documents:
                if not bench.results.has(document.name):
                    await _measure(bench, served, document)
                advance()


async def _measure(bench: Bench, served: Served, document: BenchDocument) -> None:
    """A row, unless the document has fewer than two lookups."""
    items = [item for item in document.items if item.kind == "lookup"][:2]
    if len(items) < 2:
        return
    timings = [await _timed(served, document, item.question) for item in items]
    failed = sum(len(timing.answer.coverage.failed_chunks) for timing in timings)
    if failed:
        bench.results.add_unscored(document.name, f"{failed} chunks failed")
        return
    first, second = timings
    bench.results.add(
        document.name,
        first_s=round(first.seconds, 2),
        second_s=round(second.seconds, 2),
        first_provisional_s=first.provisional_s,
        second_provisional_s=second.provisional_s,
        prompt_tokens=[_prompt_tokens(timing.answer) for timing in timings],
        cached_tokens=[_cached_tokens(timing.answer) for timing in timings],
        verdicts=[
            score_answer(item, timing.answer.text, timing.answer.found)
            for item, timing in zip(items, timings, strict=True)
        ],
    )
    bench.say(f"{document.name}: first {first.seconds:.1f} s, second {second.seconds:.1f} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timing:
    answer: Answer
    seconds: float
    provisional_s: float | None
    """None if no provisional answer was shown."""


async def _timed(served: Served, document: BenchDocument, question: str) -> _Timing:
    first_provisional: list[float] = []
    started = time.monotonic()

    def listen(event: Event) -> None:
        if isinstance(event, Provisional):
            first_provisional.append(time.monotonic() - started)

    text = Document.from_text(document.text, document.name)
    request = Request(question=question, task=task_name(document), strategy="mapreduce")
    answer = await ask(text, request, replace(served.resources, emit=listen))
    return _Timing(
        answer=answer,
        seconds=time.monotonic() - started,
        provisional_s=round(first_provisional[0], 2) if first_provisional else None,
    )


def _prompt_tokens(answer: Answer) -> int:
    return sum(usage.prompt_tokens for usage in answer.usage.values())


def _cached_tokens(answer: Answer) -> int:
    return sum(usage.cached_tokens for usage in answer.usage.values())


def report(header: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    if not rows:
        return ["no document was measured"]
    early = [row["first_provisional_s"] / row["first_s"] for row in rows if row["first_provisional_s"]]
    cached = [row["cached_tokens"][1] / row["prompt_tokens"][1] for row in rows if row["prompt_tokens"][1]]
    lines = [
        f"{header['settings']['tokens']} tokens per document, {len(rows)} documents",
        f"first question            {spread([row['first_s'] for row in rows])} s",
        f"second question           {spread([row['second_s'] for row in rows])} s",
        f"second / first            {spread([row['second_s'] / row['first_s'] for row in rows])}",
    ]
    lines += [f"second question cached    {spread(cached)} of its prompt tokens"] if cached else []
    if any(row["prompt_tokens"][0] - row["cached_tokens"][0] < header["settings"]["tokens"] / 2 for row in rows):
        lines.append("WARNING: some first questions found their document cached; use another seed or a new cluster")
    lines += [f"first provisional / whole {spread(early)}"] if early else []
    return [*lines, f"first questions without a provisional answer: {len(rows) - len(early)}"]


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    names = {
        "first_s": "first question",
        "first_provisional_s": "its first provisional answer",
        "second_s": "second question",
        "second_provisional_s": "its first provisional answer",
    }
    bars = []
    for name, label in names.items():
        seconds = [row[name] for row in rows if row[name] is not None]
        if seconds:
            bars.append(median_bar(label, seconds, f"{{:.1f}} s, n={len(seconds)}"))
    title = f"{header['model']['name']}, {header['settings']['tokens']:,} tokens, commit {header['commit'][:12]}"
    return draw_bars(title, [BarPanel(title="seconds: median, whisker to the longest", bars=bars)])


SUITE = Suite(
    purpose="time of the second question over the first, and of the first provisional answer over the whole",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, documents=1, tokens=6_000, questions=6, languages=("en",)),
)
