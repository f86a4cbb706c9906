"""What `longfold keys create | list | revoke` and `longfold db upgrade | check` do."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import typer

from pipeline.errors import CallerError, UnknownName
from serving.settings import Settings
from serving.storage.database import Database
from serving.storage.keys import ApiKey, KeyStore
from serving.storage.migrate import check_schema, newest_revision, prepare_database, upgrade_database

_DURATION = re.compile(r"(\d{1,5})([dhm])")
_UNIT_S = {"d": 86_400, "h": 3_600, "m": 60}


def create_key(
    settings: Settings,
    *,
    name: str,
    owner: str,
    scopes: list[str],
    expires_in: str,
    requests_per_minute: int | None,
    tokens_per_day: int | None,
    models: list[str],
) -> None:
    """The secret goes to standard output, alone, so that it can be piped; what people read to standard error."""

    async def create(keys: KeyStore) -> None:
        key, secret = await keys.create(
            name=name,
            owner=owner,
            scopes=scopes,
            expires_unix_s=time.time() + _seconds(expires_in) if expires_in else None,
            requests_per_minute=requests_per_minute,
            tokens_per_day=tokens_per_day,
            models=models,
        )
        typer.echo(f"Key {key.id} ({key.name}) of {key.owner}. Keep the secret now; it is not shown again.", err=True)
        typer.echo(secret)

    _with_keys(settings, create)


def list_keys(settings: Settings) -> None:
    async def show(keys: KeyStore) -> None:
        known = await keys.list_keys()
        now = time.time()
        for key in known:
            today = next(iter(await keys.usage(key.id)), None)
            used = f"{today.prompt_tokens + today.output_tokens:,} tokens on {today.day}" if today else "never used"
            limits = f"{_limit(key.requests_per_minute)}/min, {_limit(key.tokens_per_day)} tokens/day"
            scopes = ",".join(sorted(key.scopes))
            typer.echo(f"{key.id}  {_state(key, now):8}  {key.name}  owner {key.owner}  {scopes}  {limits}  {used}")
        if not known:
            typer.echo("There is no key; `longfold keys create NAME` makes one.")

    _with_keys(settings, show)


def revoke_key(settings: Settings, key_id: str) -> None:
    async def revoke(keys: KeyStore) -> None:
        if not await keys.revoke(key_id):
            known = ", ".join(key.id for key in await keys.list_keys()) or "none"
            raise UnknownName(f"There is no key {key_id!r}; there are {known}. The id is the part after lf_.")
        typer.echo(f"Key {key_id} works no more.")

    _with_keys(settings, revoke)


def upgrade_schema(settings: Settings) -> None:
    async def upgrade(database: Database) -> None:
        done = await upgrade_database(database)
        if done.before == done.after:
            typer.echo(f"{database.shown_url} is at revision {done.after} already.")
            return
        saved = f" The state before is in {done.backup}." if done.backup else ""
        typer.echo(f"{database.shown_url} is at revision {done.after} now, was at {done.before or 'none'}.{saved}")

    asyncio.run(_with_database(settings, upgrade))


def check_database(settings: Settings) -> None:
    async def check(database: Database) -> None:
        await check_schema(database)
        await database.check_integrity()
        typer.echo(f"{database.shown_url} is sound, at revision {newest_revision()}.")

    asyncio.run(_with_database(settings, check))


def _with_keys(settings: Settings, work: Callable[[KeyStore], Awaitable[None]]) -> None:
    async def run(database: Database) -> None:
        await prepare_database(database)
        await work(KeyStore(database, settings.state_dir))

    asyncio.run(_with_database(settings, run))


async def _with_database(settings: Settings, work: Callable[[Database], Awaitable[None]]) -> None:
    database = Database.open(settings.database)
    try:
        await work(database)
    finally:
        await database.close()


def _seconds(duration: str) -> int:
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise CallerError(f"--expires-in is {duration!r}; expected is a number with d, h or m, such as 90d.")
    return int(match[1]) * _UNIT_S[match[2]]


def _state(key: ApiKey, now_unix_s: float) -> str:
    if key.revoked_unix_s is not None:
        return "revoked"
    if not key.works_at(now_unix_s):
        return "expired"
    if key.expires_unix_s is None:
        return "works"
    return "to " + datetime.fromtimestamp(key.expires_unix_s, UTC).date().isoformat()


def _limit(value: int | None) -> str:
    return "any" if value is None else f"{value:,}"
