"""When a failed call is sent again. The only retry rules of the project."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from pipeline import errors
from pipeline.errors import LongfoldError, ModelError, ReplicaUnavailable
from pipeline.llm.model import CallFailed, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounded by count and by time; whichever ends first ends the call."""

    attempts: int = 3
    """Of a call that timed out or was refused."""
    model_attempts: int = 2
    """Of a call whose output cannot be used: the model is asked once more."""
    replica_attempts: int = 8
    """Of a call whose replica was lost; with the waits below they span more than a restart, 60-90 s on a CPU."""
    outage_s: float = 600.0
    """Seconds since the call's first failure after which it is given up."""
    first_wait_s: float = 1.0
    longest_wait_s: float = 15.0

    def wait_s(self, failure: CallFailed, *, failing_s: float) -> float | None:
        """Return the seconds to wait before the next attempt, with jitter; None gives the call up.

        `failure.attempts` counts the attempts made; `failing_s` is the time since the first one failed.
        """
        if failure.attempts >= self._attempts_of(failure.error) or failing_s >= self.outage_s:
            return None
        full = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failure.attempts - 1))
        return full * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, protects nothing

    def _attempts_of(self, error: str) -> int:
        kind = error_class(error)
        if not kind.retryable:
            return 1
        if issubclass(kind, ReplicaUnavailable):
            return self.replica_attempts
        return self.model_attempts if issubclass(kind, ModelError) else self.attempts


async def with_retries(
    attempt: Callable[[], Awaitable[Outcome]],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """The outcome of the first attempt that succeeds, or the failure of the last one that the policy grants."""
    attempts, failing_since = 0, 0.0
    while True:
        outcome = await attempt()
        attempts += 1
        if not isinstance(outcome, CallFailed):
            return outcome
        failing_since = failing_since if attempts > 1 else clock()
        failure = replace(outcome, attempts=attempts)
        wait_s = policy.wait_s(failure, failing_s=clock() - failing_since)
        if wait_s is None:
            return failure
        await sleep(wait_s)


def error_class(name: str) -> type[LongfoldError]:
    """The class behind `CallFailed.error`; an unknown name is a plain `LongfoldError`, which is never retried."""
    found = getattr(errors, name, LongfoldError)
    return found if isinstance(found, type) and issubclass(found, LongfoldError) else LongfoldError


def as_failure(error: LongfoldError) -> CallFailed:
    """The failure that `error` stands for. Ray raises subclasses of its own making: the name is our class's."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return CallFailed(error=kind.__name__, message=str(error))
