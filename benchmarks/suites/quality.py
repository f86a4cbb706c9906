"""Strategies side by side on every kind of question, in English and Chinese: accuracy, honesty, time and tokens.

Nothing is remembered from call to call, so that times mean something. Strategies take turns on each question, and
which goes first rotates: a slow minute of the machine or a warm prefix cache then favours none.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.ask import ask_in_turns
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.harness.variants import Variant
from benchmarks.report.answers import difference_lines, draw_answers, group_rows, kind_lines, mean_lines, table_lines
from pipeline.strategies import STRATEGIES, find_strategy

_KINDS = ("lookup", "two_hop", "conflict", "absent", "aggregation", "real")
_COMPARED = ("right", "right, evidence too", "seconds", "prompt_tokens", "output_tokens")


async def run(bench: Bench) -> None:
    names = bench.options.strategies or tuple(STRATEGIES)
    variants = [Variant(name=name, request={"strategy": name}) for name in names if find_strategy(name)]
    async with bench.serve() as served:
        await ask_in_turns(bench, served.resources, variants, bench.documents(_KINDS))


def report(header: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    ordered = _in_order(header, rows)
    return [
        *table_lines(ordered, failed),
        "",
        "mean per question, 95 % interval:",
        *mean_lines(ordered, _COMPARED),
        "",
        "differences on the same questions, 95 % interval:",
        *(line for name in list(ordered)[:1] for line in difference_lines(name, ordered, _COMPARED)),
        "",
        "right of asked, by kind:",
        *kind_lines(ordered),
    ]


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    return draw_answers(header, _in_order(header, rows), ("seconds", "prompt_tokens", "output_tokens"))


def _in_order(header: Row, rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups = group_rows(rows)
    return {name: groups[name] for name in header["settings"].get("strategies") or STRATEGIES if name in groups}


SUITE = Suite(
    purpose="strategies side by side: dependency, conflict, absence, aggregation; time and tokens beside accuracy",
    run=run,
    report=report,
    picture=picture,
    quick=Options(
        model="",
        quick=True,
        documents=1,
        tokens=3_000,
        questions=3,
        languages=("en",),
        strategies=("mapreduce", "refine", "truncate"),
    ),
)
