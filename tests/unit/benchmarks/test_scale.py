"""The simulated clock counts work and skips waiting, simulated replicas obey it, and the report says so."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.results import ResultsFile
from benchmarks.harness.suite import Bench, Options
from benchmarks.report.scale import draw_scale, report_scale
from benchmarks.suites.scale import QUICK, Point, Speed, documents_for, find_speed, simulate_point
from benchmarks.systems.model import find_bench_model
from benchmarks.systems.ray_share import map_calls, split_share
from benchmarks.systems.simulated_clock import SimulatedLoop, simulate
from benchmarks.systems.simulated_replicas import RayShare, SimulatedDispatcher, SimulatedReplicas
from pipeline.errors import CallerError, InternalError
from pipeline.llm.complete import at_once
from pipeline.llm.model import Call, Completion
from pipeline.llm.scripted import seeded_script
from serving.settings import Settings

NO_RAY = RayShare(task_s=0.0, call_s=0.0)
HEADER = {"model": {"name": "m"}}


def make_bench(tmp_path: Path, **options: Any) -> Bench:
    model = find_bench_model("scripted", Settings(cache_dir=tmp_path), lambda _: None)
    return Bench(
        options=Options(model="scripted", **options),
        results=ResultsFile(tmp_path / "scale-1.jsonl", {"suite": "scale"}),
        serve=lambda kv_cache_bytes=None: pytest.fail("nothing is served"),
        tokenizer=lambda: model.tokenizer,
        model=model,
        say=lambda _: None,
    )


def complete(replicas: int, tokens_per_s: float, calls: list[Call], ray: RayShare = NO_RAY) -> tuple[float, list[Any]]:
    """Simulated seconds, and outcomes in their order."""
    outcomes: list[Any] = []

    async def work(loop: SimulatedLoop) -> None:
        scripted = SimulatedReplicas(loop, replicas, tokens_per_s, seeded_script())
        dispatcher = SimulatedDispatcher(loop, scripted, replicas, ray)
        outcomes.extend(await at_once(map(dispatcher.complete, calls)))

    return simulate(work).seconds, outcomes


def test_waiting_takes_no_time_and_shows_on_the_clock() -> None:
    started = time.monotonic()
    took = simulate(lambda _: asyncio.sleep(3_600))
    assert time.monotonic() - started < 10
    assert took.seconds == pytest.approx(3_600, abs=1)
    assert took.worked_s < 1


def test_work_is_counted_what_is_free_is_not_and_what_is_spent_is_added() -> None:
    async def work(loop: SimulatedLoop) -> None:
        with loop.free():
            burn(0.2)
        burn(0.1)
        loop.spend(5.0)

    took = simulate(work)
    assert took.worked_s == pytest.approx(5.1, abs=0.08)
    assert took.seconds == pytest.approx(5.1, abs=0.08)


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_what_is_given_to_a_thread_is_run_in_place_and_counted() -> None:
    async def work(_: SimulatedLoop) -> None:
        assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(refuse)
        await asyncio.to_thread(burn, 0.1)

    assert simulate(work).worked_s == pytest.approx(0.1, abs=0.08)


def refuse() -> None:
    raise ValueError("no")


def test_a_simulation_in_which_nothing_can_happen_any_more_ends() -> None:
    async def work(_: SimulatedLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(InternalError, match="Nothing is left"):
        simulate(work)


def test_a_simulation_is_stopped_from_outside() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        simulate(lambda _: asyncio.sleep(1), stop)


def test_one_replica_takes_the_time_of_all_tokens() -> None:
    calls = map_calls(20)
    seconds, outcomes = complete(1, 1_000.0, calls)
    tokens = sum(one.usage.prompt_tokens + one.usage.output_tokens for one in outcomes)
    assert seconds == pytest.approx(tokens / 1_000.0, rel=0.02)
    assert len(outcomes) == 20
    assert all(isinstance(one, Completion) for one in outcomes)


def test_more_replicas_are_faster_but_never_more_than_in_proportion() -> None:
    calls = map_calls(320)
    alone, _ = complete(1, 10_000.0, calls)
    eight, _ = complete(8, 10_000.0, calls)
    assert alone / 8 <= eight < alone / 3


def test_a_chunk_that_a_replica_has_read_is_not_read_again() -> None:
    [call] = map_calls(1)
    warm = [_sharing(call, 1_000) for _ in range(2)]
    seconds, [first, _] = complete(1, 1_000.0, warm)
    whole = first.usage.prompt_tokens + first.usage.output_tokens
    assert seconds == pytest.approx((2 * whole - 1_000) / 1_000.0, rel=0.02)


def _sharing(call: Call, tokens: int) -> Call:
    return replace(call, prompt=replace(call.prompt, shared_prefix_tokens=tokens))


def test_the_driver_becomes_the_limit_when_replicas_are_fast() -> None:
    calls = map_calls(200)
    seconds, _ = complete(50, 1e9, calls, RayShare(task_s=0.016, call_s=0.001))
    assert seconds >= 200 * 0.002


def test_a_tasks_share_and_a_calls_share_are_told_apart() -> None:
    share = split_share(batched_s=0.0015, single_s=0.009, calls_per_task=16)
    assert share.of_batch(1) == pytest.approx(0.009)
    assert share.of_batch(16) / 16 == pytest.approx(0.0015)
    assert split_share(batched_s=0.002, single_s=0.001, calls_per_task=16).task_s == 0.0


@pytest.mark.parametrize("load", ["calls", "documents", "document"])
def test_a_point_is_simulated_with_the_real_driver(load: str, tmp_path: Path) -> None:
    speed = Speed(tokens_per_s=5_000.0, file="made up")
    row = simulate_point(make_bench(tmp_path), Point(load=load, speed=1, replicas=2), QUICK, speed, NO_RAY)
    assert row["replicas"] == 2
    assert row["calls"] > 2
    assert 0 <= row["idle_share"] < 1
    assert 0 < row["driver_share"] <= 1.01
    assert 0 <= row["tail_s"] <= row["simulated_s"]
    assert row["calls_per_s"] == pytest.approx(row["calls"] / row["simulated_s"], rel=0.01)


def test_replicas_share_the_documents() -> None:
    assert documents_for(1, 128_000, 2_000) == 1
    assert documents_for(1_000, 128_000, 2_000) == 125


def test_a_speed_comes_from_the_file_that_is_named(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "saturation-1.jsonl", {"suite": "saturation", "model": {"name": "other"}})
    for number, tokens_per_s in enumerate((100.0, 300.0, 200.0)):
        results.add(f"ray/{number}", side="ray", tokens_per_s=tokens_per_s)
    results.add("bare/0", side="bare", tokens_per_s=900.0)
    bench = make_bench(tmp_path, data=str(results.path))
    assert find_speed(bench) == Speed(tokens_per_s=200.0, file="saturation-1.jsonl")
    with pytest.raises(CallerError, match="no such file"):
        find_speed(make_bench(tmp_path, data=str(tmp_path / "none")))


def point(replicas: int, driver_share: float) -> dict[str, Any]:
    figures = dict.fromkeys(("idle_share", "tail_s", "driver_ms_per_call", "router_ms_per_call"), 0.5)
    about = {"load": "calls", "speed": 30, "calls": 9, "calls_per_s": 10.0 * replicas, "replica_tokens_per_s": 30.0}
    return {
        "key": f"calls/30/{replicas}",
        "simulated": True,
        "speed_from": "f.jsonl",
        "replicas": replicas,
        "driver_share": driver_share,
        **about,
        **figures,
    }


def test_the_report_and_the_plot_say_simulated_and_where_the_driver_is_the_limit() -> None:
    rows = [point(1, 0.1), point(10, 0.95)]
    told = report_scale(HEADER, rows, [])
    assert any("SIMULATED" in line for line in told)
    assert told[-1] == "simulated, calls, speed x30: the driver is the limit from 10 replicas on, at 100 calls/s"
    assert "never the limit" in report_scale(HEADER, rows[:1], [])[-1]
    assert "SIMULATED" in draw_scale(HEADER, rows, [])
