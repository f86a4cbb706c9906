"""The same model and document, two ways: one call with a window as long as the document, and Longfold with its own.

native      vLLM by itself: the document and the question in one prompt (`systems/native.py`)
longfold    strategy `mapreduce` on a served replica whose KV cache holds the document for the next question
lean        the same with the KV cache of a single window: the least that Longfold needs
stretched   native with random weights and a longer window than the model was made for: speed only, if asked for

Each way and length has an engine of its own, so nothing is in a prefix cache before the first question. Every question
asks for one planted fact. Where native decoding cannot run, the row says why, from window and memory, without a try.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.data.items import BenchDocument, BenchItem
from benchmarks.data.question_set import make_documents
from benchmarks.data.score import score_answer
from benchmarks.harness.measure import MeasuredRun, measure_run
from benchmarks.harness.process_watch import cpu_meter, watch_devices, watch_memory
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.longcontext import draw_longcontext, report_longcontext, tokens_per_s
from benchmarks.systems.native import kv_cache_bytes, memory_for_engine_bytes, native_calls, refuse, window_for
from benchmarks.systems.random_model import RANDOM_WEIGHTS, stretch, with_random_weights
from pipeline.documents.document import Document
from pipeline.errors import CallerError, UnknownName
from pipeline.llm.model import Usage
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from serving.models.profile import ModelProfile
from serving.replicas.kv_cache import fit_kv_cache
from serving.replicas.placement import place_model

WAYS = ("native", "longfold", "lean")
WARM_SHARE = 1.5
"""KV cache of `longfold` over the document's tokens: room for numbers, headers, questions and outputs beside it."""
WARM_UP_TOKENS = 1_500
KV_SAMPLE_S = 0.5
SAMPLE_TOKENS = 8_000
"""Of a document that shows how this model's tokens compare with the approximate ones of documents."""


async def run(bench: Bench) -> None:
    ways = bench.options.variants or WAYS
    if unknown := sorted(set(ways) - MEASURES.keys()):
        raise UnknownName(f"No way {unknown[0]!r}; the ways are {', '.join(MEASURES)}.")
    if bench.model.opened is None:
        raise CallerError("The suite longcontext compares engines; name a real model.")
    planned = [(length, way) for length in bench.options.lengths for way in ways]
    planned = [(length, way) for length, way in planned if not bench.results.has(f"{way}/{length}")]
    with show_progress(len(planned), "ways and lengths") as advance:
        for length, way in planned:
            bench.say(f"{way}, {length:,} tokens")
            row = await MEASURES[way](bench, _document(bench, length), bench.model.opened.profile)
            if isinstance(row, str):
                bench.results.add_unscored(f"{way}/{length}", row)
            else:
                bench.results.add(f"{way}/{length}", side=way, length=length, **row, **_compared(row))
            advance()


def _compared(row: Row) -> Row:
    """What two files are compared by."""
    if "refused" in row:
        return {}
    seconds = [one["seconds"] for one in row["questions"]]
    return dict(zip(("first_s", "second_s"), seconds, strict=False)) | {"tokens_per_s": round(tokens_per_s(row), 1)}


def _document(bench: Bench, tokens: int, *, warm_up: bool = False) -> BenchDocument:
    """English, with facts to look up, of about `tokens` tokens of this model."""
    seed, questions = bench.options.seed, bench.options.questions
    if warm_up:
        seed, questions = seed + 1, 1
    [sample] = make_documents(seed, 1, SAMPLE_TOKENS, 1, ("en",), ("lookup",))
    nominal = tokens * SAMPLE_TOKENS // bench.model.tokenizer.count(sample.text)
    [document] = make_documents(seed, 1, nominal, questions, ("en",), ("lookup",))
    return document


async def measure_native(bench: Bench, document: BenchDocument, profile: ModelProfile) -> Row:
    window = window_for(native_calls(document, bench.model.tokenizer))
    served = replace(profile, context_tokens=window)
    return await _decode_natively(bench, document, served, random_weights=bench.model.random_weights)


async def measure_stretched(bench: Bench, document: BenchDocument, profile: ModelProfile) -> Row:
    """Memory alone can refuse it."""
    window = window_for(native_calls(document, bench.model.tokenizer))
    with tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder:
        served = stretch(profile, window, Path(folder))
        return await _decode_natively(bench, document, served, random_weights=True)


async def measure_longfold(bench: Bench, document: BenchDocument, profile: ModelProfile) -> Row | str:
    wanted = int(WARM_SHARE * bench.model.tokenizer.count(document.text))
    room = kv_cache_bytes(profile, max(wanted, profile.context_tokens))
    most = fit_kv_cache(profile, free_bytes=memory_for_engine_bytes(bench.model.settings.tensor_parallel))
    return await _read_in_chunks(bench, document, profile, min(room, most))


async def measure_lean(bench: Bench, document: BenchDocument, profile: ModelProfile) -> Row | str:
    return await _read_in_chunks(bench, document, profile, kv_cache_bytes(profile, profile.context_tokens))


Measure = Callable[[Bench, BenchDocument, ModelProfile], Coroutine[Any, Any, Row | str]]
MEASURES: dict[str, Measure] = {
    "native": measure_native,
    "longfold": measure_longfold,
    "lean": measure_lean,
    "stretched": measure_stretched,
}


async def _decode_natively(
    bench: Bench, document: BenchDocument, profile: ModelProfile, *, random_weights: bool
) -> dict[str, Any]:
    """`profile` is served with its context, which is as long as the document needs."""
    from benchmarks.systems.engine_process import EngineProcess, load_watched

    about = _about(bench, document, profile, random_weights=random_weights)
    if refusal := refuse(
        profile, profile.context_tokens, free_bytes=memory_for_engine_bytes(bench.model.settings.tensor_parallel)
    ):
        bench.say(f"refused: {refusal.reason}")
        return about | {"refused": asdict(refusal)}
    reserved_bytes = kv_cache_bytes(profile, profile.context_tokens)
    placement = place_model(bench.model.settings.model_copy(update={"kv_cache_gib": reserved_bytes / 2**30}), profile)
    if random_weights:
        placement = with_random_weights(placement)
    calls = native_calls(document, bench.model.tokenizer)
    warm_up = native_calls(_document(bench, WARM_UP_TOKENS, warm_up=True), bench.model.tokenizer)
    process = await asyncio.to_thread(EngineProcess, placement, load_watched)
    questions, seen = [], []
    try:
        await asyncio.to_thread(process.work, warm_up)
        with watch_memory(process.pid) as memory, watch_devices() as devices:
            used = cpu_meter(process.pid)
            for item, call in zip(document.items, calls, strict=True):
                [watched] = await asyncio.to_thread(process.work, [call])
                seen.append(watched)
                done = watched.completion
                times = _Times(seconds=done.seconds, first_sign_s=watched.first_token_s, cpu_s=used())
                questions.append(_question(item, done.text, done.usage, times))
                bench.say(_say_question(questions))
    finally:
        process.stop()
    per_token = profile.kv_bytes_per_token
    return about | {
        "questions": questions,
        "kv_formula_bytes": per_token * max(call.cost_tokens() for call in calls),
        "kv_reserved_bytes": per_token * seen[0].kv_tokens,
        "kv_used_bytes": int(per_token * max(one.kv_usage * one.kv_tokens for one in seen)),
        "peak_rss_bytes": memory.max,
        "peak_gpu_bytes": devices.max,
    }


async def _read_in_chunks(
    bench: Bench, document: BenchDocument, profile: ModelProfile, reserved_bytes: int
) -> dict[str, Any] | str:
    questions = []
    async with bench.serve(reserved_bytes) as served:
        warm_up = _document(bench, WARM_UP_TOKENS, warm_up=True)
        await _ask_longfold(bench, served.resources, warm_up, warm_up.items[0])
        with ExitStack() as stack:
            pids = await _replica_pids()
            watches = [stack.enter_context(watch_memory(pid)) for pid in pids]
            meters = [cpu_meter(pid) for pid in pids]
            devices = stack.enter_context(watch_devices())
            async with _watch_kv() as usage:
                for item in document.items:
                    measured = await _ask_longfold(bench, served.resources, document, item)
                    if isinstance(measured, str):
                        return measured
                    answer = measured.answer
                    times = _Times(
                        seconds=answer.total_seconds,
                        first_sign_s=measured.provisional_s or answer.total_seconds,
                        cpu_s=sum(used() for used in meters),
                    )
                    text = answer.text if answer.found else ""
                    questions.append(_question(item, text, measured.usage, times))
                    bench.say(_say_question(questions))
    return _about(bench, document, profile, random_weights=bench.model.random_weights) | {
        "questions": questions,
        "kv_formula_bytes": profile.kv_bytes_per_token * profile.context_tokens,
        "kv_reserved_bytes": reserved_bytes,
        "kv_used_bytes": int(max(usage, default=0.0) * reserved_bytes),
        "peak_rss_bytes": sum(watch.max for watch in watches),
        "peak_gpu_bytes": devices.max,
    }


async def _ask_longfold(
    bench: Bench, resources: Resources, document: BenchDocument, item: BenchItem
) -> MeasuredRun | str:
    request = Request(question=item.question, strategy="mapreduce", chunk_tokens=bench.options.chunk_tokens)
    return await measure_run(bench, Document.from_text(document.text, document.name), request, resources)


async def _replica_pids() -> list[int]:
    from serving.cluster import ray_cluster

    return [int(status.stats["pid"]) for status in await asyncio.to_thread(ray_cluster.replica_statuses)]


@asynccontextmanager
async def _watch_kv() -> AsyncIterator[list[float]]:
    """The share of the KV cache that running calls hold, sampled: of the replica that holds most."""
    from serving.cluster import ray_cluster

    samples: list[float] = []

    async def sample() -> None:
        while True:
            statuses = await asyncio.to_thread(ray_cluster.replica_statuses)
            samples.append(
                max((status.stats["progress"]["kv_usage"] for status in statuses if status.stats), default=0)
            )
            await asyncio.sleep(KV_SAMPLE_S)

    task = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _about(bench: Bench, document: BenchDocument, profile: ModelProfile, *, random_weights: bool) -> dict[str, Any]:
    return {
        "weights": RANDOM_WEIGHTS if random_weights else "as published",
        "document_tokens": bench.model.tokenizer.count(document.text),
        "window_tokens": profile.context_tokens,
        "kv_bytes_per_token": profile.kv_bytes_per_token,
        "weights_bytes": profile.weights_bytes,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    seconds: float
    first_sign_s: float
    """To the first token, or to the first provisional answer, else to the answer."""
    cpu_s: float
    """Processor seconds of the engine's process: other programs on the machine disturb them less."""


def _question(item: BenchItem, text: str, usage: Usage, times: _Times) -> dict[str, Any]:
    return {
        **{name: round(value, 2) for name, value in asdict(times).items()},
        "calls": usage.calls,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "verdict": score_answer(item, text, found=True),
        "answer": text[:200],
        "accepted": item.accepted[0],
    }


def _say_question(questions: list[dict[str, Any]]) -> str:
    last = questions[-1]
    times = f"{last['seconds']:.1f} s, first sign after {last['first_sign_s']:.1f} s"
    return f"question {len(questions)}: {times}, {last['verdict']}"


SUITE = Suite(
    purpose="native decoding with a window as long as the document against Longfold: time, memory, right answers",
    run=run,
    report=report_longcontext,
    picture=draw_longcontext,
    quick=Options(model="", quick=True, lengths=(2_000, 9_000), questions=2, variants=("native", "longfold")),
)
