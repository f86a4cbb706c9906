"""API keys: who may ask what. A secret is shown once; what is stored is its HMAC under a pepper kept outside."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from pipeline.errors import CallerError, DatabaseBusy, DatabaseUnusable, OutOfDisk, UnknownName
from serving.storage import budgets
from serving.storage.budgets import Remaining
from serving.storage.database import Database
from serving.storage.json_columns import to_json
from serving.storage.schema import api_keys, key_usage

SCOPES = frozenset({"infer", "files", "admin"})
_SECRET = re.compile(r"lf_([a-z0-9]{4,40})_[A-Za-z0-9_-]{43}")
_ID_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"  # none that is taken for another
_LONGEST_NAME = 200
_LAST_USED_S = 60.0
"""`last_used` is written at most so often: it shall not cost a write per request."""
_NO_MAC = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret. Times are Unix seconds."""

    id: str
    name: str
    owner: str
    """Whose data it reaches; keys of one owner share jobs and files."""
    scopes: frozenset[str]
    created_unix_s: float
    expires_unix_s: float | None = None
    revoked_unix_s: float | None = None
    last_used_unix_s: float | None = None
    """Within a minute."""
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    models: tuple[str, ...] = ()
    """Empty: all."""

    def works_at(self, now_unix_s: float) -> bool:
        return self.revoked_unix_s is None and (self.expires_unix_s is None or now_unix_s < self.expires_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage:
    """What a key's jobs took on one day (UTC) of their acceptance."""

    day: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    reserved_tokens: int
    """Of jobs that have not ended."""


class KeyStore:
    """The keys of one installation."""

    def __init__(self, database: Database, state_dir: Path, *, now: Callable[[], float] = time.time) -> None:
        """`state_dir` holds the pepper; gateways that share a database need the same one."""
        self._database = database
        self._pepper_path = state_dir / "pepper"
        self._pepper: bytes | None = None
        self._now = now

    async def create(
        self,
        *,
        name: str,
        owner: str = "",
        scopes: Collection[str] = frozenset({"infer", "files"}),
        expires_unix_s: float | None = None,
        requests_per_minute: int | None = None,
        tokens_per_day: int | None = None,
        models: Collection[str] = (),
    ) -> tuple[ApiKey, str]:
        """The key and its secret, which cannot be shown again. Without an owner the key is its own owner's only one."""
        _check(name, owner, scopes, requests_per_minute, tokens_per_day)
        key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(10))
        secret = f"lf_{key_id}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"
        key = ApiKey(
            id=key_id,
            name=name,
            owner=owner or key_id,
            scopes=frozenset(scopes),
            created_unix_s=self._now(),
            expires_unix_s=expires_unix_s,
            requests_per_minute=requests_per_minute,
            tokens_per_day=tokens_per_day,
            models=tuple(models),
        )
        if self._pepper is None:
            if not self._pepper_path.exists() and await self.any_keys():
                raise DatabaseUnusable(self._lost())
            self._pepper = _make_pepper(self._pepper_path)
        async with self._database.write() as connection:
            await connection.execute(
                insert(api_keys).values(
                    id=key.id,
                    name=key.name,
                    owner=key.owner,
                    secret_hmac=_mac(self._pepper, secret),
                    scopes=" ".join(sorted(key.scopes)),
                    models=to_json(key.models),
                    created_unix_s=key.created_unix_s,
                    expires_unix_s=expires_unix_s,
                    requests_per_minute=requests_per_minute,
                    tokens_per_day=tokens_per_day,
                )
            )
        return key, secret

    async def verify(self, secret: str) -> ApiKey | None:
        """The key of this secret, if it works now. Takes the same time whether or not such a key exists."""
        match = _SECRET.fullmatch(secret)
        if match is None:
            return None
        async with self._database.read() as connection:
            found = await connection.execute(select(*api_keys.c).where(api_keys.c.id == match[1]))
            row = found.one_or_none()
        mac = _mac(self._read_pepper() if row is not None else _NO_MAC, secret)
        if not hmac.compare_digest(mac, row.secret_hmac if row is not None else _NO_MAC) or row is None:
            return None
        key = _key_from(row)
        if not key.works_at(self._now()):
            return None
        await self._note_use(key)
        return key

    async def list_keys(self) -> list[ApiKey]:
        """Oldest first, the revoked and expired ones too."""
        async with self._database.read() as connection:
            found = await connection.execute(select(*api_keys.c).order_by(api_keys.c.created_unix_s, api_keys.c.id))
            return [_key_from(row) for row in found]

    async def revoke(self, key_id: str) -> bool:
        """From now on it does not work, whoever asks; False if there is no such key."""
        async with self._database.write() as connection:
            changed = await connection.execute(
                update(api_keys)
                .where(api_keys.c.id == key_id)
                .values(revoked_unix_s=func.coalesce(api_keys.c.revoked_unix_s, self._now()))
            )
            return bool(changed.rowcount)

    async def any_keys(self) -> bool:
        """Whether a key was ever made, also if it works no more: then nothing is open to strangers."""
        async with self._database.read() as connection:
            return (await connection.scalar(select(api_keys.c.id).limit(1))) is not None

    async def usage(self, key_id: str) -> list[DailyUsage]:
        """Newest day first."""
        wanted = select(*key_usage.c).where(key_usage.c.key_id == key_id).order_by(key_usage.c.day.desc())
        async with self._database.read() as connection:
            return [
                DailyUsage(**{name: value for name, value in row._mapping.items() if name != "key_id"})
                for row in await connection.execute(wanted)
            ]

    async def remaining(self, key: ApiKey) -> Remaining:
        """For the x-ratelimit headers."""
        async with self._database.read() as connection:
            return await budgets.remaining(connection, key.id, self._now())

    async def _note_use(self, key: ApiKey) -> None:
        now = self._now()
        if key.last_used_unix_s is not None and abs(now - key.last_used_unix_s) < _LAST_USED_S:
            return
        with suppress(DatabaseBusy, OutOfDisk):  # a request shall not fail for it
            async with self._database.write() as connection:
                await connection.execute(update(api_keys).where(api_keys.c.id == key.id).values(last_used_unix_s=now))

    def _read_pepper(self) -> bytes:
        if self._pepper is None:
            try:
                self._pepper = self._pepper_path.read_bytes()
            except OSError as error:
                raise DatabaseUnusable(self._lost()) from error
        return self._pepper

    def _lost(self) -> str:
        return f"Keys exist, but the file {self._pepper_path} that they are checked with cannot be read; restore it."


def _make_pepper(path: Path) -> bytes:
    """Read the pepper, or make it: complete or not at all, also if two processes do so at once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f"pepper.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(32))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_bytes()


def _mac(pepper: bytes, secret: str) -> bytes:
    return hmac.new(pepper, secret.encode(), hashlib.sha256).digest()


def _check(
    name: str, owner: str, scopes: Collection[str], requests_per_minute: int | None, tokens_per_day: int | None
) -> None:
    for what, value in (("name", name), ("owner", owner)):
        if len(value) > _LONGEST_NAME or not value.isprintable():
            raise CallerError(f"The key's {what} must be printable text of at most {_LONGEST_NAME} characters.")
    if not name.strip():
        raise CallerError("The key needs a name, so that it can be recognised when it is to be revoked.")
    unknown = sorted(set(scopes) - SCOPES)
    if unknown or not scopes:
        raise UnknownName(f"A key's scopes are {', '.join(sorted(SCOPES))}; not {', '.join(unknown) or 'none'}.")
    for limit in (requests_per_minute, tokens_per_day):
        if limit is not None and limit < 1:
            raise CallerError("A key's limits are at least 1; leave one out for no limit.")


def _key_from(row: Row[Any]) -> ApiKey:
    fields = {name: value for name, value in row._mapping.items() if name not in ("secret_hmac", "rate_full_unix_s")}
    fields["scopes"] = frozenset(row.scopes.split())
    fields["models"] = tuple(json.loads(row.models))
    return ApiKey(**fields)
