"""Whatever the description allows is accepted, and what it does not is refused, each with an answer that was meant."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from tests.api.rig import QUESTION, story
from tests.api.server import Server

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,refused_only_for_a_reason"
)


def fuzz(server: Server, *options: str, config: str = "") -> None:
    """Run schemathesis on the server; its report is the failure."""
    with httpx2.Client(base_url=server.url, timeout=20) as client:
        until_s = time.monotonic() + 20
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < until_s, "the server does not become ready"
            time.sleep(0.2)
    settings = server.folder / "schemathesis.toml"
    settings.write_text(f'hooks = "tests.api.fuzz_checks"\n{config}')
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)]
    # One worker: CPython 3.11's parser, which hypothesis calls, sometimes fails when several threads use it.
    command += ["run", f"{server.url}/openapi.json", "--no-color", "--seed", "1", "--workers", "1"]
    command += ["--request-timeout", "30", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, cwd=server.folder, env=environment
    )
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]


def test_no_request_makes_a_server_error(server: Server) -> None:
    fuzz(server, "--max-examples", "3")


def test_no_question_about_a_real_job_makes_a_server_error(server: Server) -> None:
    with httpx2.Client(base_url=server.url, timeout=20) as client:
        upload = client.post("/v1/files", files={"file": ("a.txt", f"😀 {story()}".encode())}).json()
        job = client.post("/v1/jobs", json={"question": QUESTION, "file_ids": [upload["id"]]}).json()
        while (answer := client.get(f"/v1/jobs/{job['id']}/result")).status_code == 202:
            time.sleep(0.1)
        assert answer.json()["found"]
    names = {"job_id": job["id"], "response_id": job["id"], "file_id": upload["id"]}
    config = "[parameters]\n" + "".join(f'{name} = "{value}"\n' for name, value in names.items())
    fuzz(server, "--max-examples", "8", "--include-method", "GET", config=config)
