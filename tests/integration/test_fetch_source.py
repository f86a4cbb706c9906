"""The real pip and the real hub client, against this machine only."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import NetworkUnavailable
from serving.models.catalogue import HubSource
from serving.models.files import missing_files
from serving.models.sources import fetch_hub, pip_download
from tests.tiny_model import make_model, make_wheel

pytestmark = pytest.mark.integration

REPOSITORY = HubSource(repository="owner/name")
COMMIT = "c" * 40


class FakeHub(BaseHTTPRequestHandler):
    """Answers as much of the hub's protocol as a download of one small repository needs."""

    folder: Path

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if self.path.startswith("/api/models/owner/name"):
            files = [
                {
                    "rfilename": path.name,
                    "path": path.name,
                    "size": path.stat().st_size,
                    "type": "file",
                    "oid": "0" * 40,
                }
                for path in self.folder.iterdir()
            ]
            is_tree = "/tree/" in self.path
            self._send(
                json.dumps(files if is_tree else {"id": "owner/name", "sha": COMMIT, "siblings": files}).encode()
            )
        elif (self.folder / name).is_file():
            self._send((self.folder / name).read_bytes())
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"etag"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    FakeHub.folder = make_model(tmp_path / "hub")
    (FakeHub.folder / "pytorch_model.bin").write_bytes(b"a pickle, which could run code")
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_repository_is_downloaded_without_its_pickles(tmp_path: Path, hub: str) -> None:
    lines: list[str] = []
    fetch_hub(REPOSITORY, tmp_path / "out", lines.append, endpoint=hub)
    assert missing_files(tmp_path / "out") == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        path.name for path in FakeHub.folder.iterdir() if path.suffix != ".bin"
    }
    assert lines == ["downloading 0.0 GB of owner/name"]


def test_a_hub_that_refuses_is_given_up_in_seconds(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(NetworkUnavailable):
        fetch_hub(REPOSITORY, tmp_path / "out", print, endpoint="http://127.0.0.1:9")
    assert time.monotonic() - start < 20


def test_pip_brings_a_wheel_and_says_briefly_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path, "data-part1", "1.0", {"data_part1/__init__.py": b"not Python ("})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    pip_download(["data-part1==1.0"], tmp_path / "got")
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["data_part1-1.0-py3-none-any.whl"]
    with pytest.raises(NetworkUnavailable, match="data-part2") as caught:
        pip_download(["data-part2==1.0"], tmp_path / "got")
    assert "\n" not in str(caught.value)
