"""The visible text of HTML, PDF and Office files, taken by a process of its own under limits.

Files from outside may be built to exhaust a parser. So the bytes go to `python -m pipeline.documents.sandbox KIND` on
standard input and text comes back as JSON on standard output; the child caps its own memory and processor time before
it parses, may open no socket, start no program and write no file (an audit hook: a guard against a parser's excesses,
not a sandbox against native code), inherits no environment, and is killed at the deadline.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.errors import DocumentUnreadable

Kind = Literal["html", "pdf", "office"]

MEMORY_BYTES = 2 << 30
CPU_S = 60
"""Per file; pypdf reads about 20 to 50 pages in a second."""
DEADLINE_S = 180
"""Of wall time: a busy machine may need three times the processor time."""
_UNREADABLE, _EXHAUSTED = 3, 4
_FORBIDDEN = re.compile(r"socket\.(?!gethostname)|subprocess\.|os\.(system|exec|fork|posix_spawn|remove|rename|mkdir)")


@dataclass(frozen=True, slots=True)
class Part:
    """A page of a PDF, a slide, a sheet, or a whole HTML or Word document, whose label is empty."""

    label: str
    text: str


def extract_text(kind: Kind, data: bytes, name: str) -> list[Part]:
    """Run the extraction in a child process; DocumentUnreadable, naming `name`, tells why there is no text."""
    root = str(Path(__file__).resolve().parents[2])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.documents.sandbox", kind],
            input=data,
            capture_output=True,
            timeout=DEADLINE_S,
            env={"PYTHONPATH": root, "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DocumentUnreadable(f"{name} was not read after {DEADLINE_S} s. {_HOW_TO_MEND}") from None
    if done.returncode == 0:
        return [Part(label, text) for label, text in json.loads(done.stdout)]
    if done.returncode == _UNREADABLE:
        raise DocumentUnreadable(f"{name} {done.stderr.decode('utf-8', 'replace').strip()}")
    if done.returncode == _EXHAUSTED or done.returncode < 0:
        raise DocumentUnreadable(
            f"{name} needs more than {MEMORY_BYTES >> 20} MiB of memory or {CPU_S} s to read. {_HOW_TO_MEND}"
        )
    reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    raise DocumentUnreadable(f"{name} cannot be read as {kind.upper()}: {''.join(reason)[:200]}. {_HOW_TO_MEND}")


_HOW_TO_MEND = "Convert it to text with another program first."


def main() -> int:
    """Extract what standard input holds; the exit code tells what went wrong."""
    data = sys.stdin.buffer.read()
    kind = sys.argv[1]
    try:
        if kind == "pdf":
            from pipeline.documents import pdf as parser
        elif kind == "office":
            from pipeline.documents.office import text as parser  # type: ignore[no-redef]
        else:
            from pipeline.documents import html as parser  # type: ignore[no-redef]
        _confine()
        parts = parser.extract(data)
        sys.stdout.write(json.dumps(parts))
    except DocumentUnreadable as error:
        sys.stderr.write(str(error))
        return _UNREADABLE
    except (MemoryError, RecursionError):
        return _EXHAUSTED
    return 0


def _confine() -> None:
    """Limit this process for good. Called after the imports, which need files."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _FORBIDDEN.match(event) or (event == "open" and len(arguments) > 1 and "w" in str(arguments[1])):
        raise PermissionError(f"{event} is not allowed while a document is read")


if __name__ == "__main__":
    sys.exit(main())
