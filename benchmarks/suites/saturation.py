"""What the way to a replica costs: the same calls through vLLM alone and through Ray tasks, in turn.

Both engines are loaded with the same sizes, environment and KV cache, in two processes; only one works at a time, and
the other sleeps (it waits on a pipe or queue, its threads wait passively). Prompts are unique in every round, so no
prefix cache helps either. Which side goes first alternates. Ray's own daemons run beside both: what they take from
the bare engine is shown by rounds made before Ray is started. Beside the time is the work, in processor seconds,
which other programs on the machine disturb less.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.data.haystack import draw_english
from benchmarks.harness.process_watch import family_cpu_s
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row, made_by
from benchmarks.harness.statistics import spread
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.charts import BarPanel, draw_bars, median_bar
from benchmarks.systems.model import Served
from pipeline.dispatch.ray_tasks import CALLS_PER_REPLICA
from pipeline.errors import CallerError
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, CallFailed, EncodedPrompt, Sampling, Stage, Usage
from pipeline.llm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from benchmarks.systems.engine_process import BareTiming, EngineProcess

PROMPT_TOKENS = 1_490
OUTPUT_TOKENS = 48
ALONE_ROUNDS = 3
MAX_SEQUENCES = 64
_SIDES = {
    "alone": "vLLM alone, before Ray is started",
    "bare": "vLLM alone, beside Ray",
    "ray": "Longfold's way",
}
_REPLICA_MARKS = ("ServeReplica", "EngineCore")
"""In the command lines of a replica's processes."""


async def run(bench: Bench) -> None:
    from benchmarks.systems.engine_process import EngineProcess, load_bare

    if bench.model.opened is None:
        raise CallerError("The suite saturation compares engines; name a real model.")
    profile = bench.model.opened.profile
    held = max(
        profile.context_tokens, min(bench.options.prompts, MAX_SEQUENCES) * (PROMPT_TOKENS + OUTPUT_TOKENS + 128)
    )
    kv_cache_bytes = profile.kv_bytes_per_token * held
    bench.say("loading the bare engine")
    bare = EngineProcess(bench.model.place(kv_cache_bytes), load_bare)
    try:
        bare.work(make_calls(bench.model.tokenizer, "warm up bare", 4))
        alone_rounds = 1 if bench.options.quick else ALONE_ROUNDS
        for number in range(alone_rounds):
            _measure_bare(bench, bare, "alone", number)
        async with bench.serve(kv_cache_bytes) as served:
            warm_up = make_calls(bench.model.tokenizer, "warm up ray", CALLS_PER_REPLICA)  # two tasks, as in the rounds
            await at_once(map(served.resources.dispatcher.complete, warm_up))
            with show_progress(bench.options.rounds, "rounds") as advance:
                for number in range(bench.options.rounds):
                    if number % 2:
                        await _measure_ray(bench, served, bare.pid, number)
                    _measure_bare(bench, bare, "bare", number)
                    if number % 2 == 0:
                        await _measure_ray(bench, served, bare.pid, number)
                    advance()
    finally:
        bare.stop()


def make_calls(tokenizer: Tokenizer, name: str, count: int) -> list[Call]:
    """Calls whose prompts begin differently in every round and call, and are the same for both sides."""
    source = random.Random(name)
    pieces = draw_english(source, count * PROMPT_TOKENS * 5, [])
    tokens = tokenizer.encode_content("\n\n".join(piece.text() for piece in pieces))
    calls = []
    for number in range(count):
        head = tokenizer.encode_content(f"{name} {number} {source.random()}\n")
        start = number * PROMPT_TOKENS
        body = tokens[start : start + PROMPT_TOKENS - len(head)]
        prompt = EncodedPrompt(token_ids=head + body, shared_prefix_tokens=0)
        sampling = Sampling(max_output_tokens=OUTPUT_TOKENS)
        calls.append(Call(prompt=prompt, sampling=sampling, stage=Stage.MAP, chunk_index=number))
    return calls


def _measure_bare(bench: Bench, bare: EngineProcess[BareTiming], side: str, number: int) -> None:
    key = f"{side}/{number}"
    if bench.results.has(key):
        return
    calls = make_calls(bench.model.tokenizer, f"{_shared_name(side)} {number}", bench.options.prompts)
    spent = _cpu_watch(bare.pid)
    timing = bare.work(calls)
    _add(bench, key, side, timing.seconds, timing.usage, **spent())


async def _measure_ray(bench: Bench, served: Served, bare_pid: int, number: int) -> None:
    key = f"ray/{number}"
    if bench.results.has(key):
        return
    calls = make_calls(bench.model.tokenizer, f"round {number}", bench.options.prompts)
    usage = Usage()
    spent = _cpu_watch(bare_pid)
    started = time.monotonic()
    first_s = 0.0
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(served.resources.dispatcher.complete(call)) for call in calls]
        for ended in asyncio.as_completed(running):
            outcome = await ended
            if isinstance(outcome, CallFailed):
                bench.results.add_unscored(key, outcome.message)
                return
            first_s = first_s or time.monotonic() - started
            usage += outcome.usage
    _add(bench, key, "ray", time.monotonic() - started, usage, first_outcome_s=round(first_s, 2), **spent())


def _cpu_watch(bare_pid: int) -> Callable[[], dict[str, float]]:
    """Call what is returned for the processor seconds since now: of the bare engine, the replica, and all around it.

    Around it are Ray's daemons, the tasks and this driver. A replica that is none of our children, because a cluster
    was up, is not seen, and its seconds are 0.
    """
    before = family_cpu_s(os.getpid())

    def spent() -> dict[str, float]:
        bare, used = family_cpu_s(bare_pid), {"bare_cpu_s": 0.0, "replica_cpu_s": 0.0, "around_cpu_s": 0.0}
        for pid, (command, seconds) in family_cpu_s(os.getpid()).items():
            replica = any(mark in command for mark in _REPLICA_MARKS)
            side = "bare_cpu_s" if pid in bare else "replica_cpu_s" if replica else "around_cpu_s"
            used[side] += seconds - (before[pid][1] if pid in before else 0.0)
        return {side: round(seconds, 2) for side, seconds in used.items()}

    return spent


def _shared_name(side: str) -> str:
    return "alone" if side == "alone" else "round"


def _add(bench: Bench, key: str, side: str, seconds: float, usage: Usage, **more: float) -> None:
    tokens = usage.prompt_tokens - usage.cached_tokens + usage.output_tokens
    bench.results.add(
        key,
        side=side,
        round=int(key.partition("/")[2]),
        seconds=round(seconds, 3),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        tokens_per_s=round(tokens / seconds, 1),
        **more,
    )
    bench.say(f"{key}: {tokens / seconds:,.0f} tokens/s ({seconds:.1f} s, {usage.output_tokens} output tokens)")


def report(header: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    by_side = _by_side(rows)
    lines = [f"{header['settings']['prompts']} calls per round, {PROMPT_TOKENS} tokens in, at most {OUTPUT_TOKENS} out"]
    for side, rounds in by_side.items():
        if rounds:
            lines.append(f"{_SIDES[side]:34} {spread([row['tokens_per_s'] for row in rounds.values()])} tokens/s")
    both = sorted(by_side["bare"].keys() & by_side["ray"].keys())
    if both:
        pairs = [(by_side["ray"][number], by_side["bare"][number]) for number in both]
        lines.append(f"ratio, round by round: {spread([a['tokens_per_s'] / b['tokens_per_s'] for a, b in pairs])}")
        outputs = [(a["output_tokens"], b["output_tokens"]) for a, b in pairs]
        lines += _cpu_lines(pairs)
        lines.append(f"output tokens (Longfold, bare) per round: {outputs}")
    cached = sum(row["cached_tokens"] for row in rows)
    return [*lines, f"prompt tokens from a prefix cache: {cached} (must be near 0)"]


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    bars = [
        median_bar(_SIDES[side], [row["tokens_per_s"] for row in rounds.values()], "{:,.0f}")
        for side, rounds in _by_side(rows).items()
        if rounds
    ]
    return draw_bars(
        made_by(header), [BarPanel(title="tokens per second: median, whisker to the fastest round", bars=bars)]
    )


def _by_side(rows: Sequence[Row]) -> dict[str, dict[int, Row]]:
    """Rounds by their number."""
    return {side: {row["round"]: row for row in rows if row["side"] == side} for side in _SIDES}


def _cpu_lines(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Processor seconds of each side for the same calls."""
    seen = [(ray, bare) for ray, bare in pairs if ray.get("replica_cpu_s")]
    if not seen:
        return []
    return [
        f"processor seconds, bare engine      {spread([bare['bare_cpu_s'] for _, bare in seen])}",
        f"processor seconds, replica          {spread([ray['replica_cpu_s'] for ray, _ in seen])}",
        f"processor seconds, all around it    {spread([ray['around_cpu_s'] for ray, _ in seen])}",
        f"of those, while the bare one works  {spread([bare['around_cpu_s'] for _, bare in seen])}",
        f"replica over bare engine            {spread([r['replica_cpu_s'] / b['bare_cpu_s'] for r, b in seen])}",
    ]


SUITE = Suite(
    purpose="tokens per second of Longfold's way to a replica over vLLM's own offline generate",
    run=run,
    report=report,
    picture=picture,
    quick=replace(Options(model=""), quick=True, rounds=2, prompts=8),
)
