"""/metrics for Prometheus. No tenant, key, document or job is a label.

What jobs did is counted in the database, by every runner, so that it survives all processes; what requests did is
counted here, by each gateway for itself. Both kinds can be summed over gateways only where they differ: scrape the
jobs' figures from one.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from serving.api.gateway import CurrentGateway
from serving.api.ops.health import RunnerWatch
from serving.jobs.job import JobState, RunnerStatus

router = APIRouter(tags=["operations"])

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_ABOUT = {
    "longfold_model_calls_total": "Calls to the model by finished jobs.",
    "longfold_tokens_total": "Tokens of finished jobs' calls; cached: found in the prefix cache.",
    "longfold_chunks_total": "Chunks of finished jobs by what became of them.",
    "longfold_job_duration_seconds": "From a job's start to its end.",
    "longfold_stage_duration_seconds": "Time that a job spent in a stage.",
}

Totals = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


class HttpMetrics:
    """Requests of this gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "longfold_http_request_duration_seconds",
            "Until the answer began; of an event stream, too.",
            ("method", "route", "status"),
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600),
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        self._seconds.labels(known, route, str(status)).observe(seconds)


class _Families:
    """What a registry wants to see: metrics that were computed already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, gateway: CurrentGateway) -> Response:
    """Figures of jobs, calls, tokens, replicas and requests in Prometheus' text format."""
    http: HttpMetrics = request.app.state.http_metrics
    watch: RunnerWatch = request.app.state.runners
    totals = await gateway.store.totals()
    families = [
        *_jobs(await gateway.store.counts()),
        *_from_totals(totals),
        _coverage(totals),
        *_replicas(watch.alive),
        _gauge("longfold_event_streams", "Event streams open on this gateway.", gateway.feed.followers),
        *_disk(gateway.settings.state_dir),
    ]
    return Response(generate_latest(_Families(families)) + generate_latest(http.registry), media_type=_TEXT)


def _jobs(counts: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("longfold_jobs", "Jobs that are kept, by state.", labels=("state", "strategy"))
    for (state, strategy), number in sorted(counts.items()):
        jobs.add_metric((state, strategy), number)
    yield jobs
    queued = sum(number for (state, _), number in counts.items() if state == JobState.QUEUED)
    yield _gauge("longfold_queue_depth", "Jobs that wait for a runner.", queued)


def _from_totals(totals: Totals) -> Iterator[Metric]:
    """Counters as they are; names that end in _bucket, _sum and _count make a histogram."""
    histograms: dict[str, dict[tuple[tuple[str, str], ...], dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    counters: dict[str, list[tuple[tuple[tuple[str, str], ...], float]]] = defaultdict(list)
    for (name, labels), value in sorted(totals.items()):
        base, _, part = name.rpartition("_")
        if part == "bucket":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            histograms[base][rest].setdefault("buckets", []).append((dict(labels)["le"], value))
        elif part in ("sum", "count"):
            histograms[base][labels][part] = value
        else:
            counters[name].append((labels, value))
    for name, rows in counters.items():
        names = sorted({label for labels, _ in rows for label, _ in labels})
        counter = CounterMetricFamily(name.removesuffix("_total"), _ABOUT.get(name, name), labels=names)
        for labels, value in rows:
            counter.add_metric([dict(labels).get(label, "") for label in names], value)
        yield counter
    for name, parts in histograms.items():
        names = sorted({label for labels in parts for label, _ in labels})
        histogram = HistogramMetricFamily(name, _ABOUT.get(name, name), labels=names)
        for labels, found in parts.items():
            buckets = sorted(found.get("buckets", []), key=lambda bucket: float(bucket[0]))
            histogram.add_metric([dict(labels).get(label, "") for label in names], buckets, found.get("sum", 0.0))
        yield histogram


def _coverage(totals: Totals) -> Metric:
    of_chunks = {labels: value for (name, labels), value in totals.items() if name == "longfold_chunks_total"}
    chunks = {dict(labels)["outcome"]: value for labels, value in of_chunks.items()}
    every = sum(chunks.values())
    about = "Share of all chunks of finished jobs that were read."
    return _gauge("longfold_coverage_ratio", about, chunks.get("ok", 0.0) / every if every else 1.0)


def _replicas(runners: Iterable[RunnerStatus]) -> Iterator[Metric]:
    names = ("runner", "replica")
    ready = GaugeMetricFamily("longfold_runner_ready", "1 if a call came back lately.", labels=("runner",))
    up = GaugeMetricFamily("longfold_replica_up", "1 while its runner is alive.", labels=names)
    age = GaugeMetricFamily(
        "longfold_replica_last_token_age_seconds", "Since it last produced something; 0 while idle.", labels=names
    )
    speed = GaugeMetricFamily("longfold_replica_tokens_per_second", "Prompt and output tokens.", labels=names)
    kv_cache = GaugeMetricFamily(
        "longfold_replica_kv_cache_usage_ratio", "Share that running calls hold.", labels=names
    )
    running = GaugeMetricFamily("longfold_replica_calls", "Calls in the engine.", labels=(*names, "state"))
    for place, runner in enumerate(sorted(runners, key=lambda status: status.id)):
        ready.add_metric((str(place),), runner.ready)
        for number, replica in enumerate(runner.replicas):
            labels = (str(place), str(number))
            progress = replica.get("progress", {})
            up.add_metric(labels, 1)
            age.add_metric(labels, progress.get("idle_s", 0.0))
            speed.add_metric(labels, replica.get("tokens_per_s", 0.0))
            kv_cache.add_metric(labels, progress.get("kv_usage", 0.0))
            waiting = progress.get("waiting", 0)
            running.add_metric((*labels, "waiting"), waiting)
            running.add_metric((*labels, "running"), progress.get("running", 0) - waiting)
    yield from (ready, up, age, speed, kv_cache, running)


def _disk(folder: Path) -> Iterator[Metric]:
    with suppress(OSError):
        usage = shutil.disk_usage(folder)
        about = "Free share of the disk that holds the database and the files."
        yield _gauge("longfold_disk_free_ratio", about, usage.free / usage.total)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)
