"""Which replica takes a call: the one whose cache holds its chunk, unless that one is much busier than another.

Rendezvous hashing: every router ranks the replicas by the hash of chunk and replica, so that all processes agree
without talking, and a replica that comes or goes moves only its own share of the chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

OVERFLOW_FACTOR = 2.0
OVERFLOW_CALLS = 8
"""A preferred replica is left when it has more than `OVERFLOW_FACTOR` times the calls of the least loaded, and so
many more: reading a chunk again costs seconds, and so does waiting behind this many calls."""


def preferred(affinity: str, replicas: Sequence[str]) -> list[str]:
    """`replicas` (their ids), the best for `affinity` first; the same everywhere."""

    def weight(replica: str) -> bytes:
        return hashlib.blake2b(f"{affinity}\0{replica}".encode(), digest_size=8).digest()

    return sorted(replicas, key=weight, reverse=True)


def choose(affinity: str, load: Callable[[str], int], replicas: Sequence[str]) -> list[str]:
    """Replicas in the order in which to try them. `load` is the number of calls a replica has, as far as known."""
    by_load = sorted(replicas, key=load)
    if not affinity:
        return by_load
    ranked = preferred(affinity, replicas)
    least = load(by_load[0])
    if load(ranked[0]) > max(least * OVERFLOW_FACTOR, least + OVERFLOW_CALLS):
        return by_load
    return ranked


class AffinityRouter(RequestRouter):  # type: ignore[misc]
    """Serve's hook. A call's affinity arrives as the session id of its request."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        if not candidate_replicas:
            return []
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}

        def load(replica: str) -> int:
            return self.replica_queue_len_cache.get(by_id[replica].replica_id) or 0

        order = choose(pending_request.metadata.session_id or "", load, sorted(by_id))
        return [[by_id[replica]] for replica in order]
