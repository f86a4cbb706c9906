"""Keys, and that what belongs to one is not there for another, on every route."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.api.gateway_rig import TEXT, Rig, running_gateway

NOBODYS = "/v1/models/"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path) as running:
        yield running


async def test_every_route_with_an_id_is_404_for_a_stranger(rig: Rig) -> None:
    """The routes are taken from the description, so that a new one is tried too."""
    mine, theirs = await rig.make_key("mine"), await rig.make_key("theirs")
    job_id = await rig.submit(mine)
    await rig.finish(await rig.claim())
    upload = await rig.client.post("/v1/files", files={"file": ("a.txt", b"Secret words.")}, headers=mine)
    ids = {"job_id": f"job_{job_id}", "response_id": f"resp_{job_id}", "completion_id": f"chatcmpl-{job_id}"}
    ids["file_id"] = upload.json()["id"]
    described = (await rig.client.get("/openapi.json")).json()
    tried = 0
    for path, operations in described["paths"].items():
        if "{" not in path or path.startswith(NOBODYS):
            continue
        assert any(f"{{{name}}}" in path for name in ids), f"{path} has an id this test does not know"
        for method in operations:
            url = path.format_map(ids)
            answer = await rig.client.request(method, url, headers=theirs)
            assert answer.status_code == 404, f"{method} {path}: {answer.status_code} {answer.text}"
            assert "Secret" not in answer.text
            tried += 1
    assert tried >= 12
    assert (await rig.client.get("/v1/jobs", headers=theirs)).json()["data"] == []
    assert (await rig.client.get("/v1/files", headers=theirs)).json()["data"] == []
    assert (await rig.client.get(f"/v1/jobs/{job_id}/text", headers=mine)).json()["text"] == TEXT
    stolen = {"question": "What?", "file_ids": [ids["file_id"]]}
    for path in ("/v1/jobs", "/v1/jobs:estimate"):
        assert (await rig.client.post(path, json=stolen, headers=theirs)).status_code == 404
    assert (await rig.client.get(f"/v1/files/{ids['file_id']}", headers=mine)).status_code == 200
    assert (await rig.client.get(f"/v1/jobs/{job_id}", headers=mine)).json()["state"] == "completed"


async def test_the_same_idempotency_key_of_two_tenants_makes_two_jobs(rig: Rig) -> None:
    one, other = await rig.make_key("one"), await rig.make_key("other")
    first = await rig.submit(one | {"idempotency-key": "k"})
    assert await rig.submit(other | {"idempotency-key": "k"}) != first
    assert await rig.submit(one | {"idempotency-key": "k"}) == first


async def test_keys_of_one_owner_share_what_they_have(rig: Rig) -> None:
    one, other = await rig.make_key("one", owner="team"), await rig.make_key("other", owner="team")
    job_id = await rig.submit(one)
    assert (await rig.client.get(f"/v1/jobs/{job_id}", headers=other)).status_code == 200


async def test_without_any_key_this_machine_is_served_and_nobody_else(rig: Rig) -> None:
    async def status(**headers: str) -> int:
        return (await rig.client.get("/v1/jobs", headers=headers)).status_code

    assert await status() == 200
    assert await status(authorization="Bearer whatever") == 200, "OpenAI's clients cannot be without one"
    assert await status(origin=rig.url) == 200, "the console"
    assert await status(**{"sec-fetch-site": "same-origin"}) == 200, "the console, as browsers say it"
    await rig.make_key("first")
    assert await status() == 401


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"origin": "https://evil.example"}, "A web page from elsewhere"),
        ({"origin": "null"}, "A web page from elsewhere"),
        ({"sec-fetch-site": "cross-site"}, "A web page from elsewhere"),
        ({"sec-fetch-site": "same-site"}, "A web page from elsewhere"),
        ({"host": "evil.example"}, "The header Host"),
        ({"host": "evil@127.0.0.1"}, "The header Host"),
        ({"host": "127.0.0.1/evil"}, "The header Host"),
        ({"host": "[::1"}, "The header Host"),
        ({"via": "1.1 nginx"}, "'via' says that a proxy"),
        ({"x-real-ip": "127.0.0.1"}, "'x-real-ip' says that a proxy"),
        ({"forwarded": "for=127.0.0.1"}, "'forwarded' says that a proxy"),
        ({"x-forwarded-for": "127.0.0.1"}, "'x-forwarded-for' says that a proxy"),
        ({"x-forwarded-host": "localhost"}, "'x-forwarded-host' says that a proxy"),
        ({"x-forwarded-proto": "https"}, "'x-forwarded-proto' says that a proxy"),
    ],
)
async def test_without_a_key_a_proxy_and_a_foreign_page_are_told_to_get_one(
    rig: Rig, headers: dict[str, str], said: str
) -> None:
    refused = await rig.client.get("/v1/jobs", headers=headers)
    message = refused.json()["error"]["message"]
    assert (refused.status_code, said in message, "longfold keys create" in message) == (401, True, True), message
    with_key = headers | await rig.make_key("first")
    assert (await rig.client.get("/v1/jobs", headers=with_key)).status_code == 200, "with a key it is served"


async def test_without_a_key_http_1_0_is_taken_for_a_proxy(rig: Rig) -> None:
    """It is how nginx passes on by default, and then no header tells of it."""
    request = b"GET /v1/jobs HTTP/1.%d\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n\r\n"
    for minor, status in ((0, b" 401 "), (1, b" 200 ")):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(rig.url).port)
        writer.write(request % minor)
        assert status in await reader.readline()
        writer.close()


async def test_a_public_gateway_serves_nobody_without_a_key(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, loopback_only=False) as rig:
        assert (await rig.client.get("/v1/jobs")).status_code == 401
        assert (await rig.client.get("/v1/jobs", headers=await rig.make_key("a"))).status_code == 200


async def test_a_key_works_in_its_header_only_and_as_long_as_it_is_valid(rig: Rig) -> None:
    headers = await rig.make_key("good")
    secret = headers["authorization"].removeprefix("Bearer ")
    assert (await rig.client.get("/v1/jobs", headers=headers)).status_code == 200
    for other in (
        {"x-api-key": secret},
        {"authorization": f"Basic {secret}"},
        {"authorization": f"Bearer {secret[:-1]}x"},
    ):
        assert (await rig.client.get("/v1/jobs", headers=other)).status_code == 401
    for name in ("key", "api_key", "access_token"):
        assert (await rig.client.get("/v1/jobs", params={name: secret})).status_code == 401
    refused = await rig.client.get("/v1/jobs")
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert refused.headers["x-should-retry"] == "false"
    assert refused.json()["error"]["code"] == "invalid_api_key"
    expired = await rig.make_key("old", expires_unix_s=time.time() - 1)
    assert (await rig.client.get("/v1/jobs", headers=expired)).status_code == 401
    [key] = [key for key in await rig.gateway.keys.list_keys() if key.name == "good"]
    await rig.gateway.keys.revoke(key.id)
    assert (await rig.client.get("/v1/jobs", headers=headers)).status_code == 401


async def test_a_key_does_what_its_scopes_allow(rig: Rig) -> None:
    infer, files = await rig.make_key("i", scopes={"infer"}), await rig.make_key("f", scopes={"files"})
    assert (await rig.client.get("/v1/jobs", headers=files)).json()["error"]["code"] == "insufficient_scope"
    assert (await rig.client.get("/v1/files", headers=infer)).status_code == 403
    assert (await rig.client.get("/v1/files", headers=files)).status_code == 200


async def test_a_key_limited_to_models_is_told_as_for_an_unknown_one(rig: Rig) -> None:
    headers = await rig.make_key("m", models=("reference",))
    body = {"question": "Which?", "text": TEXT, "strategy": "mapreduce"}
    refused = await rig.client.post("/v1/jobs", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert (
        await rig.client.post("/v1/jobs", json=body | {"strategy": "reference"}, headers=headers)
    ).status_code == 202


async def test_the_limits_of_a_key_are_told_and_kept(rig: Rig) -> None:
    headers = await rig.make_key("limited", requests_per_minute=3, tokens_per_day=10_000_000)
    body = {"question": "Which?", "text": TEXT}
    answers = [await rig.client.post("/v1/jobs", json=body, headers=headers) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]
    assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
    assert int(answers[0].headers["x-ratelimit-remaining-tokens"]) < 10_000_000
    assert answers[0].headers["x-ratelimit-reset-tokens"].endswith("s")
    refused = answers[-1]
    assert 0 < int(refused.headers["retry-after"]) <= 21
    assert int(refused.headers["retry-after-ms"]) <= 20_000
    assert refused.json()["error"]["type"] == "rate_limit_error"
    usage = (await rig.client.get("/v1/usage", headers=headers)).json()
    assert usage["days"][0]["requests"] == 3
    assert usage["remaining"]["requests"] == 0
    small = await rig.make_key("small", tokens_per_day=100)
    refused = await rig.client.post("/v1/jobs", json=body, headers=small)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (429, "false")
    assert json.loads(refused.text)["error"]["code"] == "rate_limit_exceeded"
