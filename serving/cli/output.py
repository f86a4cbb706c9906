"""Standard output of commands, and how they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

PAUSED = 6
INTERRUPTED = 130
"""Exit codes beside those of errors (`pipeline/errors.py`)."""


def print_json(record: Mapping[str, Any]) -> None:
    print(json.dumps(record), flush=True)  # noqa: T201  # ASCII: no output encoding can break it


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))  # noqa: T201
    sys.stdout.flush()
