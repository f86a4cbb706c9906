"""Keys: shown once, stored as what cannot be turned back, good until revoked or expired."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline.errors import CallerError, DatabaseUnusable, UnknownName
from serving.storage.database import Database
from serving.storage.keys import KeyStore
from tests.integration.storage.factories import Clock


@pytest.fixture
def keys(database: Database, clock: Clock, tmp_path: Path) -> KeyStore:
    return KeyStore(database, tmp_path / "state", now=clock.unix_s)


async def test_a_secret_opens_what_it_was_made_for(keys: KeyStore) -> None:
    key, secret = await keys.create(name="team a", scopes={"infer", "admin"}, models=["mapreduce"], tokens_per_day=5)
    assert re.fullmatch(rf"lf_{key.id}_[A-Za-z0-9_-]{{43}}", secret)
    assert await keys.verify(secret) == key
    assert (key.owner, key.scopes, key.models, key.tokens_per_day) == (key.id, {"infer", "admin"}, ("mapreduce",), 5)


async def test_keys_of_one_owner_share_it(keys: KeyStore) -> None:
    one, _ = await keys.create(name="a", owner="team")
    two, _ = await keys.create(name="b", owner="team")
    assert one.owner == two.owner == "team"
    assert one.id != two.id


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: "",
        lambda s: s[:-1],
        lambda s: s + "A",
        lambda s: s[:-1] + ("A" if s[-1] != "A" else "B"),
        lambda s: s.upper(),
        lambda s: s.replace("lf_", "sk_"),
        lambda s: f"lf_nobody_{s[-43:]}",
        lambda s: s + "\0",
        lambda s: s + "\n",
        lambda s: "lf_" + "a" * 10**6,
        lambda s: "lf_é_" + "ü" * 43,
    ],
)
async def test_any_other_secret_opens_nothing(keys: KeyStore, spoil) -> None:
    _, secret = await keys.create(name="a")
    assert await keys.verify(spoil(secret)) is None


async def test_one_keys_secret_does_not_open_another(keys: KeyStore) -> None:
    (one, secret), (two, _) = await keys.create(name="a"), await keys.create(name="b")
    assert await keys.verify(secret.replace(one.id, two.id)) is None


async def test_a_key_works_until_it_expires(keys: KeyStore, clock: Clock) -> None:
    _, secret = await keys.create(name="a", expires_unix_s=clock.unix_s() + 10)
    clock.pass_s(9)
    assert await keys.verify(secret)
    clock.pass_s(1)
    assert await keys.verify(secret) is None


async def test_a_key_works_until_it_is_revoked_in_every_process(
    keys: KeyStore, other: Database, clock: Clock, tmp_path: Path
) -> None:
    elsewhere = KeyStore(other, tmp_path / "state", now=clock.unix_s)
    key, secret = await keys.create(name="a")
    assert await elsewhere.verify(secret)
    assert await keys.revoke(key.id)
    assert await elsewhere.verify(secret) is None
    revoked = (await keys.list_keys())[0].revoked_unix_s
    clock.pass_s(5)
    assert await keys.revoke(key.id)
    assert (await keys.list_keys())[0].revoked_unix_s == revoked, "the first time counts"
    assert not await keys.revoke("nobody")
    assert await keys.any_keys(), "a revoked key does not open the house to strangers"


async def test_last_use_is_noted_about_once_a_minute(keys: KeyStore, clock: Clock) -> None:
    _, secret = await keys.create(name="a")
    assert (await keys.list_keys())[0].last_used_unix_s is None
    began = clock.unix_s()
    await keys.verify(secret)
    clock.pass_s(59)
    await keys.verify(secret)
    assert (await keys.list_keys())[0].last_used_unix_s == began
    clock.pass_s(2)
    await keys.verify(secret)
    assert (await keys.list_keys())[0].last_used_unix_s == began + 61


async def test_neither_the_secret_nor_its_bare_hash_is_stored(
    keys: KeyStore, database: Database, tmp_path: Path
) -> None:
    _, secret = await keys.create(name="a")
    tail = secret.split("_", 2)[2]  # it may hold underscores itself
    async with database.read() as connection:
        [row] = (await connection.execute(text("SELECT * FROM api_keys"))).all()
    stored = repr(tuple(row)).encode() + b"".join(bytes(v) for v in row if isinstance(v, bytes | memoryview))
    for told in (secret.encode(), tail.encode(), hashlib.sha256(secret.encode()).digest()):
        assert told not in stored
    pepper = tmp_path / "state" / "pepper"
    assert pepper.stat().st_mode & 0o777 == 0o600
    assert pepper.parent.stat().st_mode & 0o777 == 0o700
    assert len(pepper.read_bytes()) == 32
    assert [path.name for path in pepper.parent.iterdir()] == ["pepper"]


async def test_a_lost_pepper_is_told_and_not_replaced(keys: KeyStore, database: Database, tmp_path: Path) -> None:
    _, secret = await keys.create(name="a")
    (tmp_path / "state" / "pepper").unlink()
    again = KeyStore(database, tmp_path / "state")
    with pytest.raises(DatabaseUnusable, match="restore it"):
        await again.verify(secret)
    with pytest.raises(DatabaseUnusable, match="restore it"):
        await again.create(name="b")
    assert not (tmp_path / "state" / "pepper").exists()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": " "}, CallerError),
        ({"name": "x" * 201}, CallerError),
        ({"name": "a\nb"}, CallerError),
        ({"name": "a", "owner": "\0"}, CallerError),
        ({"name": "a", "scopes": ["god"]}, UnknownName),
        ({"name": "a", "scopes": []}, UnknownName),
        ({"name": "a", "tokens_per_day": 0}, CallerError),
        ({"name": "a", "requests_per_minute": -1}, CallerError),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(keys: KeyStore, fields, error) -> None:
    with pytest.raises(error):
        await keys.create(**fields)
    assert not await keys.any_keys()
