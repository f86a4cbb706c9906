"""Which replica takes a batch: each lane of the dispatchers (`pipeline/dispatch/ray_tasks.py`) has one of its own.

Lanes choose in turn, each the free replica with the highest hash of lane and replica (rendezvous hashing): all
processes agree without talking, and when a replica comes or goes most lanes keep theirs, and what its cache holds.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica


@lru_cache(maxsize=4096)
def replica_of(lane: int, replicas: tuple[str, ...]) -> str:
    """Of `replicas` (their ids), the one of `lane`; the same everywhere."""

    def weight(number: int, replica: str) -> bytes:
        return hashlib.blake2b(f"{number}\0{replica}".encode(), digest_size=8).digest()

    free = set(replicas)
    for number in range(lane % len(replicas)):
        free.remove(max(free, key=lambda replica: weight(number, replica)))
    return max(free, key=lambda replica: weight(lane % len(replicas), replica))


class AffinityRouter(RequestRouter):  # type: ignore[misc]
    """Serve's hook. The lane arrives as the session id of a request."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if not candidate_replicas:
            return []
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        lane = pending_request.metadata.session_id
        if not lane:
            return [candidate_replicas]
        first = replica_of(int(lane), tuple(sorted(by_id)))
        return [[by_id[first]], [one for name, one in by_id.items() if name != first]]
