"""When another runner's lease may be taken over, told without any clock that two machines would have to share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LEASE_S = 10.0
"""A holder beats every 2 s; five beats that do not come are no delay but a death, or as good as one."""
_MOST_PER_LOOK_S = LEASE_S / 4
"""Time between two looks counts up to here: whoever was himself stopped cannot tell that others stood still."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a running job's row says of its holder."""

    job_id: str
    fence: int
    beat: int


@dataclass(slots=True)
class _Seen:
    lease: Lease
    looked_s: float
    still_s: float = 0.0


class LeaseWatch:
    """What one runner has seen of others' leases, by its own monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, lease_s: float = LEASE_S) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._most_per_look_s = min(_MOST_PER_LOOK_S, lease_s / 4)
        self._seen: dict[str, _Seen] = {}

    def look(self, leases: Iterable[Lease]) -> list[Lease]:
        """Take note of all leases there are; return those that have not changed for the length of a lease."""
        now_s = self._clock()
        seen: dict[str, _Seen] = {}
        for lease in leases:
            before = self._seen.get(lease.job_id)
            if before is None or before.lease != lease:
                seen[lease.job_id] = _Seen(lease, now_s)
                continue
            passed_s = max(0.0, now_s - before.looked_s)
            seen[lease.job_id] = _Seen(lease, now_s, before.still_s + min(passed_s, self._most_per_look_s))
        self._seen = seen
        return [entry.lease for entry in seen.values() if entry.still_s >= self._lease_s]
