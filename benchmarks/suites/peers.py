"""Longfold beside what people use today, on the same replicas: a LangGraph recipe and a plain truncated call.

All go through the OpenAI endpoint of `longfold serve` and share model, chunks, and calls at once. They take turns on
each question, and which goes first rotates. Nothing is remembered from run to run; what the engine's prefix cache holds
of a document after the first question, each way may use as its own prompts allow.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data.items import BenchDocument, BenchItem
from benchmarks.data.score import score_prose
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite, take_turns
from benchmarks.report.answers import difference_lines, group_rows, right_of, right_panel
from benchmarks.report.charts import Bar, BarPanel, draw_bars
from benchmarks.systems.serve_gateway import serve_gateway
from pipeline.errors import LongfoldError, UnknownName

if TYPE_CHECKING:  # clients are libraries that only development installs
    import httpx2

    from benchmarks.systems.peers import Peers

WAYS = ("langgraph", "truncated", "langchain", "mapreduce", "reference")
_KINDS = ("lookup", "conflict", "absent", "two_hop")
_COMPARED = ("right", "seconds", "prompt_tokens", "output_tokens")
_READY_S = 900.0


async def run(bench: Bench) -> None:
    from benchmarks.systems.gateway_client import open_client, until_ready
    from benchmarks.systems.peers import CONCURRENCY, Peers

    names = _chosen(bench.options.strategies)
    wanted = [
        (document, item, way)
        for document in bench.documents(_KINDS)
        for number, item in enumerate(document.items)
        for way in take_turns(names, number)
        if not bench.results.has(f"{way}/{item.id}")
    ]
    if not wanted:
        return
    chunk_tokens = bench.options.chunk_tokens or bench.model.chunk_tokens
    with (
        tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder,
        serve_gateway(bench.model, Path(folder), short_jobs=CONCURRENCY, sync_limit_s=10**6) as gateway,
    ):
        peers = Peers(
            url=gateway.url,
            model=bench.model.name,
            tokenizer=bench.tokenizer(),
            context_tokens=bench.model.context_tokens,
            chunk_tokens=chunk_tokens,
        )
        async with open_client(gateway.url) as client:
            bench.say("waiting for the model")
            await until_ready(client, _READY_S)
            await peers.chat("Say hello.", 4)
            with suppress(ImportError):  # every row of it says so; importing is not timed
                import benchmarks.systems.langgraph  # noqa: F401
            await _ask_all(bench, peers, client, wanted)


def _chosen(named: Sequence[str]) -> list[str]:
    if unknown := [name for name in named if name not in WAYS]:
        raise UnknownName(f"No way {unknown[0]!r} to ask; the ways are {', '.join(WAYS)}.")
    return [*(named or WAYS)]


async def _ask_all(
    bench: Bench, peers: Peers, client: httpx2.AsyncClient, wanted: Sequence[tuple[BenchDocument, BenchItem, str]]
) -> None:
    uploaded: dict[str, str] = {}
    asked: set[tuple[str, str]] = set()
    with show_progress(len(wanted), "answers") as advance:
        for document, item, way in wanted:
            if document.name not in uploaded:
                uploaded[document.name] = await peers.upload(document)
            first = (way, document.name) not in asked
            asked.add((way, document.name))
            await _ask(bench, peers, client, document, item, way, file_id=uploaded[document.name], first=first)
            advance()


async def _ask(
    bench: Bench,
    peers: Peers,
    client: httpx2.AsyncClient,
    document: BenchDocument,
    item: BenchItem,
    way: str,
    *,
    file_id: str,
    first: bool,
) -> None:
    """Keep a row, of a failure too."""
    import openai

    from benchmarks.systems.peers import add_up_jobs

    key = f"{way}/{item.id}"
    before = await add_up_jobs(client)
    started = time.monotonic()
    try:
        text = await peers.ask(way, document, item.question, file_id)
    except (openai.OpenAIError, LongfoldError, RecursionError, ImportError) as error:
        bench.say(f"{key} {item.kind}: failed, {type(error).__name__}")
        bench.results.add_unscored(key, f"{type(error).__name__}: {error}"[:500])
        return
    seconds = time.monotonic() - started
    cost = await add_up_jobs(client, since=before.last_job)
    verdict = score_prose(item, text)
    bench.results.add(
        key,
        variant=way,
        id=item.id,
        kind=item.kind,
        language=item.language,
        verdict=verdict,
        answer=text[:400],
        accepted=list(item.accepted)[:1],
        first=first,
        seconds=round(seconds, 2) if bench.model.opened else None,
        document_tokens=peers.tokenizer.count(document.text),
        calls=cost.usage.calls,
        prompt_tokens=cost.usage.prompt_tokens,
        cached_tokens=cost.usage.cached_tokens,
        output_tokens=cost.usage.output_tokens,
        remembered_calls=cost.usage.journal_calls,
    )
    bench.say(f"{key} {item.kind}: {verdict} {text[:60]!r} {seconds:.1f} s, {cost.usage.calls} calls")


def report(header: Row, rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    groups = _in_order(rows)
    tokens = sorted({row["document_tokens"] for row in rows})
    chunk_tokens = header["settings"]["chunk_tokens"] or header["model"]["chunk_tokens"]
    lines = [
        f"documents of {', '.join(f'{n:,}' for n in tokens)} tokens, chunks of {chunk_tokens:,}; per question:",
        f"{'':12} {'right':>8} {'wrong':>6} {'abst.':>6} {'unsc.':>6} {'first s':>8} {'later s':>8} {'calls':>6} "
        f"{'prompt tokens':>14} {'computed':>9} {'output':>7}",
    ]
    for way in dict.fromkeys([*groups, *(key.partition("/")[0] for key in failed)]):
        own = groups.get(way, [])
        lines.append(f"{way:12} {right_of(own):>8} {_line(own, sum(key.startswith(f'{way}/') for key in failed))}")
    remembered = sum(row["remembered_calls"] for row in rows)
    lines += [f"WARNING: {remembered} calls were remembered; their times mean nothing"] if remembered else []
    if "mapreduce" in groups:
        lines += ["", "differences on the same questions, 95 % interval:"]
        lines += difference_lines("mapreduce", groups, _COMPARED)
    return lines


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    groups = _in_order(rows)
    panels = [right_panel(groups)]
    for title, first in (("seconds, first question on a document", True), ("seconds, later questions", False)):
        means = {way: _mean_seconds(own, first=first) for way, own in groups.items()}
        bars = [Bar(label=way, value=mean, note=f"{mean:.1f} s") for way, mean in means.items() if mean is not None]
        panels += [BarPanel(title=title, bars=bars)] if bars else []
    name = f"{header['model']['name']}, {header['hardware']['cpu']}, {header['hardware']['cores']} cores"
    return draw_bars(f"The same questions, model and chunks: {name}", panels)


def _in_order(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups = group_rows(rows)
    return {way: groups[way] for way in WAYS if way in groups}


def _line(rows: Sequence[Row], failed: int) -> str:
    verdicts = [row["verdict"] for row in rows]
    seconds = [_mean_seconds(rows, first=first) for first in (True, False)]
    shown = " ".join(f"{'-' if mean is None else f'{mean:.1f}':>8}" for mean in seconds)
    computed = [row["prompt_tokens"] - row["cached_tokens"] for row in rows]
    return (
        f"{verdicts.count('wrong'):>6} {verdicts.count('abstained'):>6} {failed:>6} {shown} {_mean(rows, 'calls'):>6} "
        f"{_mean(rows, 'prompt_tokens'):>14} {f'{statistics.fmean(computed):,.0f}' if rows else '-':>9} "
        f"{_mean(rows, 'output_tokens'):>7}"
    )


def _mean_seconds(rows: Sequence[Mapping[str, Any]], *, first: bool) -> float | None:
    """None without an engine, or without such a question."""
    seconds = [row["seconds"] for row in rows if row["first"] is first and row["seconds"] is not None]
    return statistics.fmean(seconds) if seconds else None


def _mean(rows: Sequence[Row], name: str) -> str:
    return f"{statistics.fmean(row[name] for row in rows):,.0f}" if rows else "-"


SUITE = Suite(
    purpose="a LangGraph recipe, a truncated call and three strategies on the same replicas: answers, time, tokens",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, documents=1, tokens=3_000, questions=2, languages=("en",)),
)
