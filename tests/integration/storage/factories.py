"""Small real objects for the storage's tests."""

from __future__ import annotations

from typing import Any

from serving.jobs.job import Claim, Job, JobRequest, JobState, Lane, NewJob
from serving.jobs.store import JobStore, LeaseWatch

OWNER = "team"
NOON_UNIX_S = 1_800_014_400.0 - 1_800_014_400.0 % 86_400 + 43_200
"""On some day in 2027."""


class Clock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.wall_s = NOON_UNIX_S
        self.steady_s = 0.0

    def unix_s(self) -> float:
        return self.wall_s

    def monotonic_s(self) -> float:
        return self.steady_s

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


def new_job(**changes: Any) -> NewJob:
    fields: dict[str, Any] = {
        "owner": OWNER,
        "key_id": "",
        "surface": "job",
        "request": JobRequest(question="What broke?", strategy="mapreduce"),
        "lane": Lane.LONG,
    }
    return NewJob(**(fields | changes))


async def submit(store: JobStore, **changes: Any) -> Job:
    job, _ = await store.submit(new_job(**changes))
    return job


async def claim(store: JobStore, runner_id: str = "r1", watch: LeaseWatch | None = None) -> Claim:
    taken = await store.claim(runner_id, Lane.LONG, watch or LeaseWatch())
    assert taken is not None
    return taken


async def state_of(store: JobStore, job_id: str) -> JobState:
    return (await store.heads([job_id]))[job_id][1]


async def kinds(store: JobStore, job_id: str) -> list[str]:
    return [event.kind for event in await store.events(job_id)]
