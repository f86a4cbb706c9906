"""Any sequence of what gateways and runners may do keeps every promise about jobs, events, leases and budgets."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pipeline.errors import LeaseLost, WrongState
from serving.jobs.job import TERMINAL, Claim, JobState, Lane, NewEvent
from serving.jobs.store import LEASE_S, JobStore, LeaseWatch
from serving.storage.database import Database
from serving.storage.keys import KeyStore
from serving.storage.migrate import prepare_database
from tests.integration.storage.factories import OWNER, Clock, new_job

RESERVED = 7
TERMINAL_KINDS = {f"job.{state}" for state in TERMINAL}
ENDS: dict[JobState, dict[str, Any]] = {
    JobState.COMPLETED: {"result": {"text": "x"}},
    JobState.FAILED: {"error": {"type": "X"}},
    JobState.CANCELLED: {},
}


class JobLife(RuleBasedStateMachine):
    """The model is a state, a fence and a cancel flag for each job; the store must agree after every step."""

    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.database = Database.open(f"sqlite:///{self.folder.name}/jobs.db")
        self.store = JobStore(self.database, now=self.clock.unix_s)
        self.keys = KeyStore(self.database, Path(self.folder.name), now=self.clock.unix_s)
        self.wait(prepare_database(self.database))
        self.key, _ = self.wait(self.keys.create(name="k", owner=OWNER))
        self.state: dict[str, JobState] = {}
        self.fence: dict[str, int] = {}
        self.turn: dict[str, int] = {}
        self.cancelling: set[str] = set()
        self.seen: dict[str, list[Any]] = {}
        self.used_tokens = 0

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(work)

    def teardown(self) -> None:
        self.wait(self.database.check_integrity())
        self.wait(self.database.close())
        self.loop.close()
        self.folder.cleanup()

    def holds(self, claim: Claim) -> bool:
        job_id = claim.job.id
        return self.state.get(job_id) is JobState.RUNNING and self.fence[job_id] == claim.fence

    @rule(target=jobs)
    def submit(self) -> str:
        self.clock.pass_s(1)
        job, _ = self.wait(self.store.submit(new_job(key_id=self.key.id, reserve_tokens=RESERVED)))
        self.queue(job.id)
        self.fence[job.id] = 0
        return str(job.id)

    def queue(self, job_id: str) -> None:
        """Behind the owner's last job in the queue."""
        self.turn[job_id] = max((self.turn[other] + 1 for other in self.queued()), default=0)
        self.state[job_id] = JobState.QUEUED

    def queued(self) -> list[str]:
        return [job_id for job_id, state in self.state.items() if state is JobState.QUEUED]

    @rule(target=claims)
    def claim(self) -> Claim | None:
        claim = self.wait(self.store.claim("r", Lane.LONG, LeaseWatch()))
        first = min(self.queued(), key=lambda job_id: (self.turn[job_id], job_id), default=None)
        assert (claim.job.id if claim else None) == first
        if claim:
            self.note_claim(claim)
        return claim

    @rule(target=claims)
    def take_over(self) -> Claim | None:
        """Everybody stops beating for the length of a lease."""
        watch = LeaseWatch(self.clock.monotonic_s)
        running = [job_id for job_id, state in self.state.items() if state is JobState.RUNNING]
        if not running or JobState.QUEUED in self.state.values():
            return None
        for _ in range(int(LEASE_S)):
            assert self.wait(self.store.claim("r", Lane.LONG, watch)) is None
            self.clock.pass_s(1)
        claim = self.wait(self.store.claim("r", Lane.LONG, watch))
        assert claim.job.id == min(running)
        assert claim.job.cancel_requested == (claim.job.id in self.cancelling)
        self.note_claim(claim)
        return claim

    def note_claim(self, claim: Claim) -> None:
        assert claim.fence == self.fence[claim.job.id] + 1
        self.state[claim.job.id], self.fence[claim.job.id] = JobState.RUNNING, claim.fence

    @rule(claim=claims)
    def beat(self, claim: Claim | None) -> None:
        if claim:
            expected = {claim.job.id: claim.job.id in self.cancelling} if self.holds(claim) else {}
            assert self.wait(self.store.beat([claim])) == expected

    @rule(claim=claims, key=st.sampled_from(["", "a", "b"]))
    def append(self, claim: Claim | None, key: str) -> None:
        if claim:
            self.expect(claim, self.store.append(claim, [NewEvent(kind=f"x:{key}", data={}, key=key)]))

    @rule(claim=claims, state=st.sampled_from(sorted(TERMINAL)))
    def finish(self, claim: Claim | None, state: JobState) -> None:
        if claim:
            usage = {"map": {"prompt_tokens": 2, "output_tokens": 1}}
            if self.expect(claim, self.store.finish(claim, state, usage=usage, **ENDS[state])):
                self.state[claim.job.id] = state
                self.used_tokens += 3

    @rule(claim=claims)
    def release(self, claim: Claim | None) -> None:
        if claim and self.expect(claim, self.store.release(claim)):
            cancelled = claim.job.id in self.cancelling
            self.state[claim.job.id] = JobState.CANCELLED if cancelled else JobState.QUEUED

    def expect(self, claim: Claim, write: Coroutine[Any, Any, None]) -> bool:
        """A write succeeds for whoever holds the job, and for nobody else."""
        if self.holds(claim):
            self.wait(write)
            return True
        with pytest.raises(LeaseLost):
            self.wait(write)
        return False

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        job = self.wait(self.store.request_cancel(job_id, OWNER))
        if job_id not in self.state:
            assert job is None
        elif self.state[job_id] is JobState.QUEUED:
            self.state[job_id] = JobState.CANCELLED
        elif self.state[job_id] is JobState.RUNNING:
            self.cancelling.add(job_id)

    @rule(job_id=jobs)
    def retry(self, job_id: str) -> None:
        if job_id not in self.state:
            assert self.wait(self.store.retry(job_id, OWNER)) is None
        elif self.state[job_id] in (JobState.FAILED, JobState.CANCELLED):
            self.wait(self.store.retry(job_id, OWNER))
            self.queue(job_id)
            self.cancelling.discard(job_id)
        else:
            with pytest.raises(WrongState):
                self.wait(self.store.retry(job_id, OWNER))

    @rule(job_id=consumes(jobs))
    def delete(self, job_id: str) -> None:
        if self.state[job_id] in TERMINAL:
            assert self.wait(self.store.delete(job_id, OWNER))
            for known in (self.state, self.fence, self.seen):
                known.pop(job_id, None)
        else:
            with pytest.raises(WrongState):
                self.wait(self.store.delete(job_id, OWNER))

    @invariant()
    def agrees(self) -> None:
        heads = self.wait(self.store.heads(list(self.state)))
        assert {job_id: state for job_id, (_, state) in heads.items()} == self.state
        for job_id, (last_seq, state) in heads.items():
            events = self.wait(self.store.events(job_id))
            assert [event.seq for event in events] == list(range(1, last_seq + 1))
            assert events[: len(self.seen.get(job_id, []))] == self.seen.get(job_id, []), "history only grows"
            kinds = [event.kind for event in events]
            assert max(kinds.count("x:a"), kinds.count("x:b")) <= 1, "what has a key is told once"
            assert (kinds[-1] in TERMINAL_KINDS) == (state in TERMINAL)
            assert state not in TERMINAL or kinds[-1] == f"job.{state}"
            self.seen[job_id] = events
        [usage] = self.wait(self.keys.usage(self.key.id)) or [None]
        if usage:
            open_jobs = sum(state not in TERMINAL for state in self.state.values())
            assert usage.reserved_tokens == RESERVED * open_jobs
            assert usage.prompt_tokens + usage.output_tokens == self.used_tokens


JobLife.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJobLife = JobLife.TestCase
