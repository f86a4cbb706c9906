"""What each improvement is worth: the same questions with everything on, then with one thing off at a time.

Calls are greedy and remembered, so that variants differ in nothing but what is switched; tokens are counted as if
nothing had been remembered. Seconds need a run with `computed`, in which every call is made and variants take turns.
They are compared on all but a document's first question: that one finds the document cached or not, by turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.ask import ask_everything, ask_in_turns
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.harness.variants import COLLECT, DEFAULT, VARIANTS, find_variants
from benchmarks.report.answers import difference_lines, draw_answers, group_rows, kind_lines, mean_lines, table_lines

_PRICES = ("later_seconds", "calls", "prompt_tokens", "output_tokens")
_COMPARED = ("right", "right, evidence too", *_PRICES)


async def run(bench: Bench) -> None:
    """`default` is always among the variants: without it there is nothing to compare with."""
    wanted = bench.options.variants or tuple(name for name in VARIANTS if name != COLLECT)
    variants = find_variants([DEFAULT, *(name for name in wanted if name != DEFAULT)])
    async with bench.serve() as served:
        if bench.options.computed:
            await ask_in_turns(bench, served.resources, variants, bench.documents())
        else:
            await ask_everything(bench, served.remembering, variants)


def report(_: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    groups = group_rows(rows)
    taken = [f"  {name:22} {VARIANTS[name].label}" for name in groups if name != DEFAULT]
    return [
        *taken,
        "",
        *table_lines(groups, failed),
        "",
        "default, mean over all questions, 95 % interval:",
        *mean_lines({name: rows for name, rows in groups.items() if name == DEFAULT}, _COMPARED),
        "",
        "default minus variant on the same questions, 95 % interval",
        "(right: above 0 is what the default gives; seconds and tokens: below 0 is what it saves)",
        *difference_lines(DEFAULT, groups, _COMPARED),
        "",
        "right of asked, by kind:",
        *kind_lines(groups),
    ]


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    return draw_answers(header, group_rows(rows), _PRICES)


SUITE = Suite(
    purpose="what each improvement is worth: one switched off at a time, paired by question",
    run=run,
    report=report,
    picture=picture,
    quick=Options(
        model="",
        quick=True,
        documents=1,
        tokens=5_000,
        questions=2,
        languages=("en",),
        variants=("no_support", "stated_confidence", "unstructured", "half_chunks", "reference", "reference_plain"),
    ),
)
