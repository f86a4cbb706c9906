"""Uploads: streamed, limited while they are read, shown as OpenAI's clients expect."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import psutil
import pytest

from tests.api.gateway_rig import Rig, running_gateway

BOUNDARY = "----longfold-test"
LIMIT_BYTES = 4 << 20
LONG = b"word " * 40_000


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_gateway(tmp_path, max_upload_bytes=LIMIT_BYTES) as running:
        yield running


def part(disposition: str, body: bytes = b"", media_type: str = "") -> bytes:
    kind = f"Content-Type: {media_type}\r\n" if media_type else ""
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n{kind}\r\n"
    return head.encode() + body + b"\r\n"


async def send(rig: Rig, *parts: bytes, end: bool = True, piece_bytes: int = 1 << 16) -> tuple[int, dict[str, object]]:
    """Send a form in pieces of unknown total length."""
    body = b"".join(parts) + (f"--{BOUNDARY}--\r\n".encode() if end else b"")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), piece_bytes):
            yield body[start : start + piece_bytes]

    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    answer = await rig.client.post("/v1/files", content=pieces(), headers=headers)
    return answer.status_code, answer.json()


def leftovers(rig: Rig) -> list[Path]:
    found = (rig.folder / "state" / "files").glob("**/*")
    return [path for path in found if path.is_file() and path.parent.name != "processes"]


async def test_an_upload_is_kept_shown_listed_given_back_and_forgotten(rig: Rig) -> None:
    data = "Grüße aus München.\n".encode() * 10
    answer = await rig.client.post("/v1/files", files={"file": ("brief.txt", data)}, data={"purpose": "user_data"})
    assert answer.status_code == 200, answer.text
    file = answer.json()
    assert (file["object"], file["bytes"], file["filename"], file["purpose"]) == (
        "file",
        len(data),
        "brief.txt",
        "user_data",
    )
    assert file["longfold"]["characters"] == len(data.decode())
    assert file["longfold"]["tokens"] == rig.gateway.model.tokenizer.count(data.decode())
    path = f"/v1/files/{file['id']}"
    assert (await rig.client.get(path)).json() == file
    assert (await rig.client.get("/v1/files")).json()["data"] == [file]
    assert (await rig.client.get("/v1/files", params={"purpose": "batch"})).json()["data"] == []
    content = await rig.client.get(f"{path}/content")
    assert (content.content, content.headers["content-type"]) == (data, "application/octet-stream")
    assert content.headers["content-disposition"].startswith("attachment;")
    assert (await rig.client.delete(path)).json() == {"id": file["id"], "object": "file", "deleted": True}
    assert (await rig.client.get(path)).status_code == 404
    assert leftovers(rig) == []


async def test_a_body_beyond_the_limit_is_refused_while_it_is_read(rig: Rig) -> None:
    status, body = await send(
        rig, part('name="purpose"', b"user_data"), part('name="file"; filename="a"', b"x" * (2 * LIMIT_BYTES))
    )
    assert (status, body["error"]["code"]) == (413, "upload_too_large")  # type: ignore[index]
    assert leftovers(rig) == []
    assert (await rig.client.get("/v1/files")).json()["data"] == []


async def test_memory_stays_flat_while_a_large_upload_comes_in(tmp_path: Path) -> None:
    total_bytes, piece = 96 << 20, b"All work and no play makes Jack a dull boy. 0123456789\n" * 1200
    own = psutil.Process()
    async with running_gateway(tmp_path, max_upload_bytes=256 << 20) as rig:
        await send(rig, part('name="purpose"', b"batch"), part('name="file"; filename="warm"', piece))
        before = own.memory_info().rss
        most = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal most
            yield part('name="purpose"', b"batch")
            yield part('name="file"; filename="large"')[:-2]
            for _ in range(total_bytes // len(piece)):
                yield piece
                most = max(most, own.memory_info().rss)
            yield f"\r\n--{BOUNDARY}--\r\n".encode()

        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        answer = await rig.client.post("/v1/files", content=pieces(), headers=headers)
        assert answer.json()["bytes"] == total_bytes // len(piece) * len(piece)
    assert most - before < 24 << 20


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 16])
async def test_a_form_is_read_wherever_the_network_cuts_it(rig: Rig, piece_bytes: int) -> None:
    data = b"line one\r\n--" + BOUNDARY.encode()[:-1] + b"\r\n--\r\nend" * 20
    status, file = await send(rig, part('name="file"; filename="a.txt"', data, "text/plain"), piece_bytes=piece_bytes)
    assert status == 200
    content = await rig.client.get(f"/v1/files/{file['id']}/content")
    assert hashlib.sha256(content.content).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    ("parts", "end", "status", "code"),
    [
        ([part('name="purpose"', b"user_data")], True, 400, "missing_file"),
        ([part('name="file"; filename="a"', b"hello")], False, 400, "incomplete_upload"),
        ([part('name="document"; filename="a"', b"hello")], True, 400, "unknown_parameter"),
        ([part('name="purpose"', b"party"), part('name="file"; filename="a"', b"hello")], True, 400, "invalid_purpose"),
        ([part('name="file"; filename="a"', LONG), part('name="purpose"', b"batch")], True, 400, "field_after_file"),
        ([part('name="expires_after"', b"1"), part('name="file"; filename="a"', b"x")], True, 400, "unknown_parameter"),
        (
            [part('name="file"; filename="a"', b"x"), part('name="file"; filename="b"', b"y")],
            True,
            400,
            "too_many_files",
        ),
        ([part('name="purpose"', b"u" * 9000), part('name="file"; filename="a"', b"x")], True, 400, "field_too_long"),
        ([part('name="file"; filename="a"', b" \n ")], True, 422, "empty_document"),
        ([part('name="file"; filename="a.pdf"', b"%PDF-1.4\nbroken")], True, 422, "document_unreadable"),
    ],
)
async def test_a_form_that_is_not_as_it_should_be_leaves_nothing(
    rig: Rig, parts: list[bytes], end: bool, status: int, code: str
) -> None:
    answered, body = await send(rig, *parts, end=end)
    assert (answered, body["error"]["code"]) == (status, code)  # type: ignore[index]
    assert leftovers(rig) == []


async def test_what_is_no_form_is_refused(rig: Rig) -> None:
    for content, kind in ((b"{}", "application/json"), (b"x", "multipart/form-data"), (b"", "text/plain")):
        answer = await rig.client.post("/v1/files", content=content, headers={"content-type": kind})
        assert (answer.status_code, answer.headers["x-should-retry"]) == (415, "false")
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    answer = await rig.client.post("/v1/files", content=b"no boundary here", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_multipart")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..\\\\..\\\\boot.ini", "a%0d%0aSet-Cookie: b=c", "%2e%2e/x", "\u202egnp.exe"]
)
async def test_a_clients_file_name_is_only_shown(rig: Rig, name: str) -> None:
    disposition = f'name="file"; filename="{name}"'
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\nhello\r\n".encode()
    status, file = await send(rig, head)
    assert status == 200, file
    shown = str(file["filename"])
    assert "/" not in shown
    assert "\\" not in shown
    assert shown.isprintable()
    content = await rig.client.get(f"/v1/files/{file['id']}/content")
    assert content.status_code == 200
    assert "set-cookie" not in content.headers
    assert all(rig.folder in path.parents for path in leftovers(rig))


async def test_a_client_that_goes_away_leaves_nothing(rig: Rig) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield part('name="file"; filename="a"', b"x" * 300_000)[:-2]
        await asyncio.sleep(0.05)
        raise ConnectionError

    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    with pytest.raises(ConnectionError):
        await rig.client.post("/v1/files", content=broken(), headers=headers)
    for _ in range(100):
        if not leftovers(rig):
            break
        await asyncio.sleep(0.05)
    assert leftovers(rig) == []
    assert (await rig.client.get("/healthz")).status_code == 200


async def test_a_file_may_be_given_a_time_to_expire(rig: Rig) -> None:
    async with openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="none", max_retries=0) as client:
        made = await client.files.create(
            file=("a.txt", b"Some words."),
            purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert made.expires_at == made.created_at + 3600
        assert (await client.files.retrieve(made.id)).expires_at == made.expires_at
    for fields, param in (
        ({"expires_after[seconds]": "60"}, "expires_after[seconds]"),
        ({"expires_after[seconds]": "soon"}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "never", "expires_after[seconds]": "3600"}, "expires_after[anchor]"),
    ):
        refused = await rig.client.post("/v1/files", files={"file": ("a.txt", b"Some words.")}, data=fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
