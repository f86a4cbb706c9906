"""Whole runs: are answers right, is "not in the document" right, does the evidence state it, is confidence honest?

Calls are greedy and remembered, and the times of a run that found calls remembered are left out. The variant `collect`
drops no finding: its findings, right and wrong, are what the calibration is fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.fit.calibration import calibration_lines
from benchmarks.harness.ask import ask_everything
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.harness.variants import COLLECT, DEFAULT, find_variants
from benchmarks.report.answers import difference_lines, draw_answers, group_rows, kind_lines, mean_lines, table_lines


async def run(bench: Bench) -> None:
    variants = find_variants(bench.options.variants or (COLLECT, DEFAULT))
    async with bench.serve() as served:
        await ask_everything(bench, served.remembering, variants)


def report(header: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    groups = group_rows(rows)
    return [
        *table_lines(groups, failed),
        "",
        "mean over all questions, 95 % interval:",
        *mean_lines(groups, ["right", "prompt_tokens", "output_tokens"]),
        *difference_lines(DEFAULT, groups, ["right"]),
        "",
        "right of asked, by kind:",
        *kind_lines(groups),
        "",
        *calibration_lines(header, rows),
    ]


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    return draw_answers(header, group_rows(rows), ("calls", "prompt_tokens", "output_tokens"))


SUITE = Suite(
    purpose="right answers, right abstentions, evidence and honest confidence; fits the calibration",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, documents=1, tokens=5_000, questions=2, languages=("en",)),
)
