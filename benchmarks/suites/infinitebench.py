"""InfiniteBench through the front door: generated tasks at any length, and the released files where they are given.

Both scorers mark the same output. Calls are remembered, so a stopped run goes on where it was and the times of a run
that found calls remembered are left out.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from benchmarks.harness.measure import measure_run
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row, made_by
from benchmarks.harness.statistics import mean_estimate
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.infinitebench.generate import GENERATORS
from benchmarks.infinitebench.records import HUB_DATASET, Record, count_records, question_of, read_records
from benchmarks.infinitebench.summary import score_row, summary_lines, task_label
from benchmarks.infinitebench.tasks import GENERATED, INF_TASKS, SCORERS, InfTask, find_task
from benchmarks.report.charts import Bar, BarPanel, draw_bars
from pipeline.documents.document import Document
from pipeline.errors import CallerError
from pipeline.run.request import Request
from pipeline.run.strategy import Resources

ANSWER_HEADING = "Answer: "
"""An answer is scored as if it stood under the heading that post-processing looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The source of a task's records."""

    name: str
    length: str
    """If generated at another length than published, which; else empty."""
    count: int
    records: Iterator[Record]


async def run(bench: Bench) -> None:
    options = bench.options
    tasks = [find_task(name) for name in options.tasks or _available(options)]
    strategies = options.strategies or ("auto",)
    asked = len(strategies) * sum(_open(options, task).count for task in tasks)  # before a model: a file may be absent
    async with bench.serve() as served:
        with show_progress(asked, "records") as advance:
            for strategy, task in product(strategies, tasks):
                source = _open(options, task)
                for record in source.records:
                    key = f"{strategy}/{task.name}/{record.id}"
                    if not bench.results.has(key):
                        await _ask(bench, served.remembering, key, task, record, source)
                    advance()


def _available(options: Options) -> tuple[str, ...]:
    """The generated tasks; with a folder, the tasks whose files are there. Raises CallerError if there are none."""
    if not options.data:
        return GENERATED
    found = tuple(name for name in INF_TASKS if (Path(options.data) / f"{name}.jsonl").is_file())
    if not found:
        names = ", ".join(f"{name}.jsonl" for name in INF_TASKS)
        raise CallerError(f"{options.data} has no file of InfiniteBench; it may hold {names} of {HUB_DATASET}.")
    return found


def _open(options: Options, task: InfTask) -> _Source:
    """Records spread evenly over the task; `questions=0` takes all. Raises CallerError if a file is not there."""
    generator = GENERATORS.get(task.name)
    if options.data or generator is None:
        folder = Path(options.data or ".")
        places = spread_places(count_records(folder, task.name), options.questions)
        name = f"{task.name}.jsonl {_sha256(folder / f'{task.name}.jsonl')[:12]}"
        return _Source(name=name, length="", count=len(places), records=read_records(folder, task.name, places))
    units = generator.units_for(options.tokens)
    places = spread_places(generator.count(units), options.questions)
    records = (generator.make(options.seed, place, units) for place in places)
    length = "" if units == generator.published_units else f"{units * generator.tokens_per_unit / 1000:.0f}K"
    name = f"generated, seed {options.seed}, {units} units"
    return _Source(name=name, length=length, count=len(places), records=records)


def spread_places(count: int, wanted: int) -> list[int]:
    """`wanted` places from first to last, evenly apart; all if 0 or more than there are."""
    if not wanted or wanted >= count:
        return list(range(count))
    return [round(place * (count - 1) / max(1, wanted - 1)) for place in range(wanted)]


@cache
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _ask(bench: Bench, resources: Resources, key: str, task: InfTask, record: Record, source: _Source) -> None:
    request = Request(
        question=question_of(task, record),
        task=task.task,
        choices=record.options if task.task == "multiple_choice" else (),
        strategy=key.partition("/")[0],
        chunk_tokens=bench.options.chunk_tokens,
    )
    measured = await measure_run(bench, Document.from_text(record.context, key), request, resources)
    if isinstance(measured, str):
        bench.results.add_unscored(key, measured)
        return
    answer = measured.answer
    output = f"{ANSWER_HEADING}{answer.text}" if answer.text else ""
    scores = score_row(task.name, output, record.labels, post_processed=True)
    bench.results.add(
        key,
        strategy=request.strategy,
        id=record.id,
        source=source.name,
        length=source.length,
        published_tokens=task.published_tokens,
        found=answer.found,
        probability=round(answer.probability, 4),
        **scores,
        **measured.row(),
    )
    bench.say(f"{key}: lenient {scores['lenient']:.2f}, upstream {scores['upstream']:.2f}, {answer.text[:60]!r}")


def report(header: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    lines = [f"chunk of {header['settings']['chunk_tokens'] or header['model']['chunk_tokens']} tokens"]
    for strategy in dict.fromkeys([*(row["strategy"] for row in rows), *(key.partition("/")[0] for key in failed)]):
        own = [row for row in rows if row["strategy"] == strategy]
        unscored = Counter(key.split("/")[1] for key in failed if key.startswith(f"{strategy}/"))
        lines += ["", f"{strategy}, answers under the heading, after post-processing", *summary_lines(own, unscored)]
    return [*lines, "", *_length_lines(rows)]


def _length_lines(rows: Sequence[Row]) -> list[str]:
    """A document much shorter than the published one is an easier task."""
    lines = [f"{'task':16} {'tokens':>10} {'published (cl100k)':>19}  source"]
    for name in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == name]
        tokens = statistics.mean(row["document_tokens"] for row in own)
        label = INF_TASKS[name].label
        lines.append(f"{label:16} {tokens:>10,.0f} {own[0]['published_tokens']:>19,}  {own[0]['source']}")
    return lines


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    """A panel per strategy and scorer; whiskers end at the upper end of the interval."""
    panels: list[BarPanel] = []
    for strategy, scorer in product(dict.fromkeys(row["strategy"] for row in rows), SCORERS):
        own = [row for row in rows if row["strategy"] == strategy]
        bars: list[Bar] = []
        for name in dict.fromkeys(row["task"] for row in own):
            group = [row for row in own if row["task"] == name]
            score = mean_estimate([100 * row[scorer] for row in group])
            bars.append(
                Bar(label=task_label(name, group), value=score.value, high=score.high, note=f"{score.value:.1f}")
            )
        panels.append(BarPanel(title=f"{strategy}, {scorer} scorer, 100 × mean", bars=bars, full=100.0))
    return draw_bars(made_by(header), panels)


SUITE = Suite(
    purpose="InfiniteBench: generated PassKey, Number, KV and Math.Find, or released files; both scorers",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, tokens=4_000, questions=2),
)
