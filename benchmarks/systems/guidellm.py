"""GuideLLM against `/v1`, where it is installed: a load that others can compare with, beside our own.

It is no dependency: it needs older packages than Longfold's lock has and brings 20 more. In an environment of its own,
with its command on the PATH, it is found here.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import InternalError

COMMAND = "guidellm"
STREAMS = (1, 4)
"""Chats at once, one after another."""
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 32


def find_guidellm() -> str | None:
    return shutil.which(COMMAND)


def guidellm_command(command: str, url: str, model: str, tokenizer: Path, seconds: float, out: Path) -> list[str]:
    """The command line. With a length of outputs in its data it would ask for `ignore_eos`, which `/v1` refuses."""
    arguments = {
        "backend": {
            "kind": "openai_http",
            "target": url,
            "model": model,
            "max_tokens": OUTPUT_TOKENS,
            "validate_backend": False,
        },
        "profile": {"kind": "concurrent", "streams": STREAMS[:1]},
        "constraint": {"kind": "max_duration", "seconds": seconds},
        "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer)},
        "data": {"kind": "synthetic_text", "prompt_tokens": PROMPT_TOKENS},
        "output": {"kind": "json", "path": str(out)},
    }
    options = [part for name, value in arguments.items() for part in (f"--{name}", json.dumps(value))]
    return [command, "run", *options, "--override", "profile.streams", ",".join(map(str, STREAMS)), "--disable-console"]


async def run_guidellm(arguments: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """A record for each number of streams. Raises InternalError with what it said last if it fails."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode:
        raise InternalError(f"{COMMAND} ended with {process.returncode}: {said.decode(errors='replace')[-500:]}")
    return read_guidellm(out)


def read_guidellm(out: Path) -> list[dict[str, Any]]:
    """The part of its report that is kept, in milliseconds."""
    report = json.loads(out.read_text("utf-8"))
    return [_read_one(streams, one["metrics"]) for streams, one in zip(STREAMS, report["benchmarks"], strict=True)]


def _read_one(streams: int, metrics: Mapping[str, Any]) -> dict[str, Any]:
    totals = metrics["request_totals"]
    first = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    whole = metrics["request_latency"]["successful"]["percentiles"]
    return {
        "streams": streams,
        "chats": totals["successful"],
        "errors": totals["errored"],
        "first_p50_ms": round(first["p50"], 1),
        "first_p99_ms": round(first["p99"], 1),
        "whole_p50_ms": round(1e3 * whole["p50"], 1),
        "whole_p99_ms": round(1e3 * whole["p99"], 1),
        "per_s": round(metrics["requests_per_second"]["successful"]["mean"], 2),
    }
