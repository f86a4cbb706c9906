"""A key's limits: requests per minute and tokens per day, taken at admission, settled with the real use at the end.

Every function works inside its caller's write transaction, so what is taken for a job stands or falls with the job.
Requests are limited by a bucket that holds a minute's worth and refills evenly; its fill is one number, the moment at
which it is full again. Tokens count for the day (UTC) on which the job was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import case, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from pipeline.errors import QuotaExceeded
from serving.storage.schema import api_keys, key_usage
from serving.storage.upsert import upsert

_MINUTE_S = 60.0
_DAY_S = 86_400.0
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left of a key's limits; None where there is no limit. Resets are seconds from now."""

    requests_limit: int | None = None
    requests: int | None = None
    requests_reset_s: float = 0.0
    tokens_limit: int | None = None
    tokens: int | None = None
    tokens_reset_s: float = 0.0


def day_of(now_unix_s: float) -> str:
    return datetime.fromtimestamp(now_unix_s, UTC).date().isoformat()


async def reserve(connection: AsyncConnection, key_id: str, tokens: int, now_unix_s: float) -> str:
    """Take one request and `tokens` from the key's limits; return the day they are held on ("" without a key).

    Raises QuotaExceeded; the caller's transaction must then be rolled back.
    """
    if not key_id:
        return ""
    limits = await _limits_of(connection, key_id)
    day = day_of(now_unix_s)
    if limits is not None and limits.requests_per_minute is not None:
        full_unix_s = _take_request(limits.rate_full_unix_s, limits.requests_per_minute, now_unix_s)
        await connection.execute(update(api_keys).where(api_keys.c.id == key_id).values(rate_full_unix_s=full_unix_s))
    if limits is not None and limits.tokens_per_day is not None:
        await _refuse_too_many(connection, key_id, tokens, limits.tokens_per_day, now_unix_s)
    await upsert(connection, key_usage, {"key_id": key_id, "day": day}, add={"requests": 1, "reserved_tokens": tokens})
    return day


async def settle(
    connection: AsyncConnection, key_id: str, day: str, reserved_tokens: int, usage: Mapping[str, Any] | None
) -> None:
    """Give back what was reserved on `day` and book what was used; without `usage`, nothing was."""
    if not key_id or not day:
        return
    held = key_usage.c.reserved_tokens
    await connection.execute(
        update(key_usage)
        .where(key_usage.c.key_id == key_id, key_usage.c.day == day)
        .values(
            reserved_tokens=case((held > reserved_tokens, held - reserved_tokens), else_=0),
            prompt_tokens=key_usage.c.prompt_tokens + _sum_of(usage, "prompt_tokens"),
            output_tokens=key_usage.c.output_tokens + _sum_of(usage, "output_tokens"),
        )
    )


async def remaining(connection: AsyncConnection, key_id: str, now_unix_s: float) -> Remaining:
    limits = await _limits_of(connection, key_id, lock=False)
    if limits is None:
        return Remaining()
    per_minute, per_day = limits.requests_per_minute, limits.tokens_per_day
    owed_s = _owed_s(limits.rate_full_unix_s, now_unix_s)
    used = await _tokens_of(connection, key_id, day_of(now_unix_s)) if per_day is not None else 0
    return Remaining(
        requests_limit=per_minute,
        requests=None if per_minute is None else int((_MINUTE_S - owed_s + _ROUNDING_S) * per_minute / _MINUTE_S),
        requests_reset_s=owed_s,
        tokens_limit=per_day,
        tokens=None if per_day is None else max(0, per_day - used),
        tokens_reset_s=_to_midnight_s(now_unix_s),
    )


def _owed_s(full_unix_s: float, now_unix_s: float) -> float:
    """Seconds until the bucket is full. More than a minute cannot be: the clock was set back."""
    owed_s = max(full_unix_s - now_unix_s, 0.0)
    return owed_s if owed_s <= _MINUTE_S + _ROUNDING_S else 0.0


def _take_request(full_unix_s: float, per_minute: int, now_unix_s: float) -> float:
    """The moment at which the bucket is full again after one more request."""
    each_s = _MINUTE_S / per_minute if per_minute else float("inf")
    owed_s = _owed_s(full_unix_s, now_unix_s)
    wait_s = owed_s + each_s - _MINUTE_S
    if wait_s > _ROUNDING_S:
        raise QuotaExceeded(
            f"The key's limit of {per_minute} requests per minute is reached.",
            retry_after_s=wait_s if per_minute else None,
        )
    return now_unix_s + owed_s + each_s


async def _refuse_too_many(
    connection: AsyncConnection, key_id: str, tokens: int, per_day: int, now_unix_s: float
) -> None:
    if tokens > per_day:
        raise QuotaExceeded(
            f"The job may take {tokens:,} tokens, more than the key's {per_day:,} per day; waiting does not help."
        )
    used = await _tokens_of(connection, key_id, day_of(now_unix_s))
    if used + tokens > per_day or used >= per_day:
        raise QuotaExceeded(
            f"The job may take {tokens:,} tokens; the key has {max(0, per_day - used):,} of {per_day:,} left today.",
            retry_after_s=_to_midnight_s(now_unix_s),
        )


async def _limits_of(connection: AsyncConnection, key_id: str, *, lock: bool = True) -> Any:
    wanted = select(api_keys.c.requests_per_minute, api_keys.c.tokens_per_day, api_keys.c.rate_full_unix_s).where(
        api_keys.c.id == key_id
    )
    return (await connection.execute(wanted.with_for_update() if lock else wanted)).one_or_none()


async def _tokens_of(connection: AsyncConnection, key_id: str, day: str) -> int:
    taken = key_usage.c.prompt_tokens + key_usage.c.output_tokens + key_usage.c.reserved_tokens
    found = await connection.execute(select(taken).where(key_usage.c.key_id == key_id, key_usage.c.day == day))
    return int(found.scalar() or 0)


def _sum_of(usage: Mapping[str, Any] | None, field: str) -> int:
    return sum(int(stage.get(field, 0)) for stage in (usage or {}).values() if isinstance(stage, Mapping))


def _to_midnight_s(now_unix_s: float) -> float:
    return _DAY_S - now_unix_s % _DAY_S
