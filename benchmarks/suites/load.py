"""Does a short chat stay short while long documents are read beside it?

`longfold serve` as it is, with a real engine. One client sends chats, one after another, while 0, 1 or 4 jobs on long
documents run; the conditions take turns. A chat's answer comes in one piece, as the gateway sends it when it is whole,
so the first content that a client sees is the last; a chat of one token tells when the engine had its first.
GuideLLM, where its command is found, then loads the service with chats alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.data.question_set import make_documents
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.charts import Bar, BarPanel, draw_bars
from benchmarks.systems.gateway import GatewayProcess
from benchmarks.systems.guidellm import COMMAND, OUTPUT_TOKENS, find_guidellm, guidellm_command, run_guidellm
from benchmarks.systems.serve_gateway import serve_gateway
from pipeline.errors import InternalError

if TYPE_CHECKING:  # clients are libraries that only development installs
    import httpx2
    import openai

    from benchmarks.systems.long_jobs import LongJobs

LONG_JOBS = (0, 1, 4)
_READY_S = 900.0
_GUIDELLM_S, _GUIDELLM_QUICK_S = 20.0, 5.0
_MEASURED = {
    "first_s": "first content of 32 tokens",
    "whole_s": "whole answer of 32 tokens",
    "one_token_s": "whole answer of one token",
}


@dataclass(frozen=True, kw_only=True)
class _Load:
    """State that the parts of a run share."""

    bench: Bench
    gateway: GatewayProcess
    http: httpx2.AsyncClient
    openai: openai.AsyncOpenAI
    jobs: LongJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatTime:
    first_s: float
    whole_s: float


async def run(bench: Bench) -> None:
    import openai

    from benchmarks.systems.gateway_client import LONGEST_S, open_client, until_ready
    from benchmarks.systems.long_jobs import LongJobs

    blocks = [
        (number, jobs)
        for number in range(bench.options.rounds)
        for jobs in (LONG_JOBS if number % 2 == 0 else LONG_JOBS[::-1])
        if not bench.results.has(f"block/{number}/{jobs}")
    ]
    if not blocks and bench.results.has("guidellm"):
        return
    document = make_documents(bench.options.seed, 1, bench.options.tokens, 1, ("en",), ("lookup",))[0]
    with (
        tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder,
        serve_gateway(bench.model, Path(folder), long_jobs=max(LONG_JOBS)) as gateway,
    ):
        client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=LONGEST_S)
        async with open_client(gateway.url) as http, client:
            bench.say("waiting for the model")
            await until_ready(http, _READY_S)
            jobs = LongJobs(http, document.text)
            load = _Load(bench=bench, gateway=gateway, http=http, openai=client, jobs=jobs)
            await _time_chat(load, 2)
            with show_progress(len(blocks) * bench.options.prompts, "chats") as advance:
                for number, long_jobs in blocks:
                    await _measure_block(load, number, long_jobs, advance)
            await _measure_guidellm(load)


async def _measure_block(load: _Load, number: int, long_jobs: int, advance: Callable[[], None]) -> None:
    """Chats of both lengths in turn; the block is unscored if a long job or a chat fails."""
    import openai

    bench, key = load.bench, f"block/{number}/{long_jobs}"
    whole: list[_ChatTime] = []
    one_token: list[_ChatTime] = []
    running: list[int] = []
    completed, reason = load.jobs.completed, ""
    try:
        async with load.jobs.keep(long_jobs):
            for _ in range(bench.options.prompts):
                running.append(load.jobs.running)
                whole.append(await _time_chat(load, OUTPUT_TOKENS))
                one_token.append(await _time_chat(load, 1))
                advance()
    except* (InternalError, openai.OpenAIError) as failed:
        reason = "; ".join(f"{type(error).__name__}: {error}" for error in failed.exceptions)[:500]
    if reason:
        bench.say(f"{key}: failed")
        bench.results.add_unscored(key, reason)
        return
    first_s, whole_s = [chat.first_s for chat in whole], [chat.whole_s for chat in whole]
    one_token_s = [chat.whole_s for chat in one_token]
    bench.results.add(
        key,
        part="block",
        round=number,
        side=f"{long_jobs} long jobs",
        long_jobs=long_jobs,
        whole_p50_s=round(_at(whole_s, 0.5), 3),
        one_token_p50_s=round(_at(one_token_s, 0.5), 3),
        running=round(statistics.fmean(running), 2),
        jobs_completed=load.jobs.completed - completed,
        first_s=[round(seconds, 3) for seconds in first_s],
        whole_s=[round(seconds, 3) for seconds in whole_s],
        one_token_s=[round(seconds, 3) for seconds in one_token_s],
    )
    bench.say(f"round {number}, {long_jobs} long jobs: whole chat p50 {_at(whole_s, 0.5):.2f} s")


async def _time_chat(load: _Load, output_tokens: int) -> _ChatTime:
    """A chat whose beginning no cache knows."""
    text = f"{time.monotonic_ns()}: {_CHAT}"
    started = time.perf_counter()
    first_s = 0.0
    stream = await load.openai.chat.completions.create(
        model=load.bench.model.name,
        messages=[{"role": "user", "content": text}],
        max_tokens=output_tokens,
        temperature=0,
        stream=True,
    )
    async for piece in stream:
        if not first_s and piece.choices and piece.choices[0].delta.content:
            first_s = time.perf_counter() - started
    whole_s = time.perf_counter() - started
    return _ChatTime(first_s=first_s or whole_s, whole_s=whole_s)


_CHAT = (
    "a colleague asks for a short note on how to keep minutes of a meeting. Write down the points that matter, in "
    "plain words, and begin with the most important one."
)


async def _measure_guidellm(load: _Load) -> None:
    command, opened = find_guidellm(), load.bench.model.opened
    if command is None or opened is None:
        load.bench.say(f"{COMMAND} is not on the PATH: its part is left out (benchmarks/README.md)")
        return
    if load.bench.results.has("guidellm"):
        return
    seconds = _GUIDELLM_QUICK_S if load.bench.options.quick else _GUIDELLM_S
    out = load.gateway.folder / "guidellm.json"
    arguments = guidellm_command(command, load.gateway.url, load.bench.model.name, opened.profile.path, seconds, out)
    load.bench.say(f"{COMMAND} loads the service for {seconds:g} s with each number of chats at once")
    try:
        measured = await run_guidellm(arguments, out)
    except InternalError as error:
        load.bench.results.add_unscored("guidellm", str(error))
        return
    load.bench.results.add("guidellm", part="guidellm", measured=measured)


def report(header: Row, rows: Sequence[Row], _: Sequence[str]) -> list[str]:
    blocks = [row for row in rows if row["part"] == "block"]
    lines = [
        f"long documents of about {header['settings']['tokens']:,} tokens; seconds, p50 / p99:",
        f"{'long jobs':>9} {'running':>8} {'chats':>6} {'first content':>15} {'whole':>15} {'one token':>15}",
    ]
    for long_jobs in LONG_JOBS:
        own = [row for row in blocks if row["long_jobs"] == long_jobs]
        if own:
            cells = " ".join(f"{_percentiles(own, name):>15}" for name in _MEASURED)
            running = statistics.fmean(row["running"] for row in own)
            lines.append(f"{long_jobs:>9} {running:>8.1f} {len(_all(own, 'whole_s')):>6} {cells}")
    lines += [line for long_jobs in LONG_JOBS[1:] for line in _ratio_lines(blocks, long_jobs)]
    for row in rows:
        if row["part"] == "guidellm":
            lines += ["", "GuideLLM, chats alone; milliseconds, p50 / p99:", *map(_guidellm_line, row["measured"])]
    return lines


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    blocks = [row for row in rows if row["part"] == "block"]
    panels = []
    for name in ("whole_s", "one_token_s"):
        bars = []
        for long_jobs in LONG_JOBS:
            seconds = _all([row for row in blocks if row["long_jobs"] == long_jobs], name)
            if seconds:
                p50, p99 = _at(seconds, 0.5), _at(seconds, 0.99)
                label = f"{long_jobs} long job{'s' * (long_jobs != 1)}"
                bars.append(Bar(label=label, value=p50, high=p99, note=f"{p50:.2f} s, p99 {p99:.2f} s"))
        panels.append(BarPanel(title=f"{_MEASURED[name]}: p50, whisker to p99", bars=bars))
    name = f"{header['model']['name']}, {header['hardware']['cpu']}, {header['hardware']['cores']} cores"
    return draw_bars(f"A short chat beside long jobs: {name}", panels)


def _ratio_lines(blocks: Sequence[Row], long_jobs: int) -> list[str]:
    """Round by round, so that a slow minute of the machine is in both."""
    medians = {(row["round"], row["long_jobs"]): _at(row["whole_s"], 0.5) for row in blocks}
    ratios = [
        medians[number, long_jobs] / medians[number, 0]
        for number in sorted({number for number, _ in medians})
        if (number, long_jobs) in medians and (number, 0) in medians
    ]
    if not ratios:
        return []
    shown = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    return [f"median of a whole chat with {long_jobs} over alone, by round: {shown}"]


def _guidellm_line(one: dict[str, Any]) -> str:
    return (
        f"{one['streams']:>9} at once {one['chats']:>6} chats, {one['errors']} errors, first "
        f"{one['first_p50_ms']:,.0f} / {one['first_p99_ms']:,.0f}, whole {one['whole_p50_ms']:,.0f} / "
        f"{one['whole_p99_ms']:,.0f}, {one['per_s']:.2f} a second"
    )


def _percentiles(rows: Sequence[Row], name: str) -> str:
    seconds = _all(rows, name)
    return f"{_at(seconds, 0.5):.2f} / {_at(seconds, 0.99):.2f}"


def _all(rows: Sequence[Row], name: str) -> list[float]:
    return [seconds for row in rows for seconds in row[name]]


def _at(seconds: Sequence[float], share: float) -> float:
    return float(np.quantile(np.asarray(seconds), share))


SUITE = Suite(
    purpose="short chats beside 0, 1 and 4 running long jobs: time to first content and to the whole, p50 and p99",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, tokens=12_000, rounds=1, prompts=5),
)
