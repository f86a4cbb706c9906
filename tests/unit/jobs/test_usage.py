"""What a job used is counted once, whoever ran it."""

from __future__ import annotations

from pipeline.documents.document import Span
from pipeline.findings.answer import Coverage, FailedChunk
from pipeline.llm.model import CallFailed, Stage, Usage
from pipeline.run.events import CallEnded
from serving.jobs.usage import Ledger


def call(stage: Stage = Stage.MAP, *, failed: bool = False, **usage: int) -> CallEnded:
    failure = CallFailed(error="InternalError", message="") if failed else None
    return CallEnded(stage=stage, chunk_index=0, usage=Usage(**usage), failed=failure, from_journal=False)


def test_totals_tell_outcomes_and_what_the_prefix_cache_saved() -> None:
    ledger = Ledger()
    ledger.add(call(calls=1, prompt_tokens=100, cached_tokens=60, output_tokens=7))
    ledger.add(call(failed=True, calls=3))
    ledger.add(call(journal_calls=1))
    totals = ledger.totals(2.0, stage_seconds={}, coverage=None)
    outcomes = {labels[0][1]: n for (name, labels), n in totals.items() if name == "longfold_model_calls_total"}
    assert outcomes == {"ok": 1, "failed": 1, "cached": 1}
    tokens = {labels[:2]: n for (name, labels), n in totals.items() if name == "longfold_tokens_total"}
    assert tokens == {
        (("cached", "false"), ("direction", "input")): 40,
        (("cached", "true"), ("direction", "input")): 60,
        (("cached", "false"), ("direction", "output")): 7,
    }


def test_a_duration_falls_into_every_bucket_that_is_not_shorter() -> None:
    totals = Ledger().totals(61.0, stage_seconds={Stage.MAP: 0.5}, coverage=None)
    jobs = {labels[0][1]: n for (name, labels), n in totals.items() if name == "longfold_job_duration_seconds_bucket"}
    assert (jobs["60"], jobs["300"], jobs["+Inf"]) == (0, 1, 1)
    assert totals["longfold_job_duration_seconds_sum", ()] == 61.0
    assert totals["longfold_stage_duration_seconds_bucket", (("le", "1"), ("stage", "map"))] == 1


def test_a_chunk_that_a_limit_kept_back_did_not_fail() -> None:
    failed = [
        FailedChunk(index=i, span=Span(0, 1), stage=Stage.MAP, error=error, message="")
        for i, error in enumerate(["LimitReached", "LimitReached", "CallTimedOut"])
    ]
    coverage = Coverage(chunks=10, chunks_read=7, chunks_extracted=7, failed_chunks=tuple(failed))
    totals = Ledger().totals(1.0, stage_seconds={}, coverage=coverage)
    chunks = {labels[0][1]: n for (name, labels), n in totals.items() if name == "longfold_chunks_total"}
    assert chunks == {"ok": 7, "failed": 1, "unread": 2}


def test_a_job_that_ends_early_in_a_later_attempt_pays_for_the_longer_one() -> None:
    ledger = Ledger()
    ledger.add(call(calls=1, prompt_tokens=100))
    before = {"map": {"calls": 5, "prompt_tokens": 480}, "gate": {"calls": 9}}
    record = ledger.record(before)
    assert (record["map"]["calls"], record["map"]["prompt_tokens"], record["gate"]["calls"]) == (5, 480, 9)
