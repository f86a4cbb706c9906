"""What a job has used, added up from its events: for its result, its key's budget, and the durable counters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from pipeline.findings.answer import Coverage
from pipeline.llm.model import Stage, Usage
from pipeline.run.events import CallEnded

Labels = tuple[tuple[str, str], ...]
Totals = dict[tuple[str, Labels], float]
"""By metric name and labels, the labels sorted by name."""

DURATION_BUCKETS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, math.inf)
"""Upper bounds: from a chat to a shelf of books on a CPU."""
UsageRecord = Mapping[str, Mapping[str, int]]
"""By stage, the fields of `Usage`."""


class Ledger:
    """Of one attempt at a job."""

    def __init__(self) -> None:
        self.usage: dict[Stage, Usage] = {}
        self._calls: Counter[tuple[Stage, str]] = Counter()

    def add(self, event: CallEnded) -> None:
        outcome = "failed" if event.failed else "cached" if event.usage.journal_calls else "ok"
        self._calls[event.stage, outcome] += 1
        self.usage[event.stage] = self.usage.get(event.stage, Usage()) + event.usage

    def record(self, before: UsageRecord | None = None) -> dict[str, dict[str, int]]:
        """Usage by stage. An attempt before this one may have got further: of each number the larger counts."""
        known = dict(before or {})
        now = {stage.value: asdict(used) for stage, used in self.usage.items()}
        return {
            stage: {
                field.name: max(now.get(stage, {}).get(field.name, 0), known.get(stage, {}).get(field.name, 0))
                for field in fields(Usage)
            }
            for stage in {**known, **now}
        }

    def totals(self, duration_s: float, *, stage_seconds: Mapping[Stage, float], coverage: Coverage | None) -> Totals:
        """What the job adds to the counters that outlive every process."""
        totals: Totals = {}
        for (stage, outcome), calls in self._calls.items():
            totals["longfold_model_calls_total", (("outcome", outcome), ("stage", stage.value))] = calls
        for stage, used in self.usage.items():
            for direction, cached, tokens in _tokens(used):
                labels = (("cached", cached), ("direction", direction), ("stage", stage.value))
                totals["longfold_tokens_total", labels] = tokens
        for outcome, chunks in _chunks(coverage):
            totals["longfold_chunks_total", (("outcome", outcome),)] = chunks
        totals |= _histogram("longfold_job_duration_seconds", (), duration_s)
        for stage, seconds in stage_seconds.items():
            totals |= _histogram("longfold_stage_duration_seconds", (("stage", stage.value),), seconds)
        return totals


def _tokens(used: Usage) -> Iterator[tuple[str, str, int]]:
    yield "input", "false", used.prompt_tokens - used.cached_tokens
    yield "input", "true", used.cached_tokens
    yield "output", "false", used.output_tokens


def _chunks(coverage: Coverage | None) -> Iterator[tuple[str, int]]:
    if coverage is None:
        return
    failed = sum(chunk.error != "LimitReached" for chunk in coverage.failed_chunks)
    yield "ok", coverage.chunks_read
    yield "failed", failed
    yield "unread", coverage.chunks - coverage.chunks_read - failed


def _histogram(name: str, labels: Labels, seconds: float) -> Totals:
    """Cumulative, as Prometheus has it: each bucket counts what is not longer than its bound."""
    totals: Totals = {(f"{name}_count", labels): 1.0, (f"{name}_sum", labels): seconds}
    for bound in DURATION_BUCKETS_S:
        le = "+Inf" if math.isinf(bound) else f"{bound:g}"
        totals[f"{name}_bucket", tuple(sorted([*labels, ("le", le)]))] = float(seconds <= bound)
    return totals


def stage_records(usage: Mapping[Stage, Usage]) -> dict[str, Any]:
    """Usage by stage as JSON types."""
    return {stage.value: asdict(used) for stage, used in usage.items()}
