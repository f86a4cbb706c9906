"""An uploaded file to its text, in a process of its own with limits; a million-token text never enters the gateway.

`python -m serving.storage.parse_file` gets the file's path and name as JSON on standard input, writes text and index
beside one another, and answers with JSON on standard output. The child caps its memory, processor time and output
before it reads, inherits no environment, leads a process group, and the whole group is killed at the deadline. PDF,
HTML and Office files are read by a further child under tighter limits (`pipeline.documents.sandbox`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import CallerError, DocumentUnreadable, EmptyDocument, OutOfDisk
from serving.storage.stored_text import TextFacts, write_text

MEMORY_BYTES = 4 << 30
CPU_S = 120
DEADLINE_S = 300.0
"""Of wall time; longer than the reading of a PDF may take, so that its own message is heard."""
_UNREADABLE, _EMPTY, _EXHAUSTED, _DISK_FULL = 3, 4, 5, 6
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseLimits:
    """What reading one file may take."""

    memory_bytes: int = MEMORY_BYTES
    cpu_s: int = CPU_S
    deadline_s: float = DEADLINE_S


async def parse_file(source: Path, name: str, target: Path, limits: ParseLimits) -> TextFacts:
    """Write the text of the file `source`, which its owner calls `name`, to `target` and its index beside it.

    Raises DocumentUnreadable, EmptyDocument, OutOfDisk; what was written must then be removed by the caller.
    """
    wish: dict[str, str | int] = {"source": str(source), "name": name, "target": str(target)}
    wish |= {"memory_bytes": limits.memory_bytes, "cpu_s": limits.cpu_s}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serving.storage.parse_file"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(_ROOT), "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limits.deadline_s):
            out, err = await child.communicate(json.dumps(wish).encode())
    except TimeoutError:
        raise DocumentUnreadable(f"{name} was not read after {limits.deadline_s:.0f} s. {_HOW_TO_MEND}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    if child.returncode == 0:
        return TextFacts.from_record(json.loads(out))
    message = err.decode("utf-8", "replace").strip()
    if child.returncode == _UNREADABLE:
        raise DocumentUnreadable(message)
    if child.returncode == _EMPTY:
        raise EmptyDocument(message)
    if child.returncode == _DISK_FULL:
        raise OutOfDisk("The disk is full: the text of the upload could not be stored.")
    if child.returncode == _EXHAUSTED or (child.returncode or 0) < 0:
        raise DocumentUnreadable(
            f"{name} needs more than {limits.memory_bytes >> 20} MiB of memory or {limits.cpu_s} s to read. "
            f"{_HOW_TO_MEND}"
        )
    raise DocumentUnreadable(f"{name} cannot be read ({''.join(message.splitlines()[-1:])[:200]}). {_HOW_TO_MEND}")


_HOW_TO_MEND = "Convert it to text with another program first."


def main() -> int:
    """Read what standard input names; the exit code tells what went wrong."""
    wish = json.load(sys.stdin)
    for limit, value in (
        (resource.RLIMIT_AS, wish["memory_bytes"]),
        (resource.RLIMIT_CPU, wish["cpu_s"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    from pipeline.documents.load import load_bytes

    try:
        document = load_bytes(Path(wish["source"]).read_bytes(), wish["name"])
        facts = write_text(document, Path(wish["target"]))
        sys.stdout.write(json.dumps(facts.record()))
    except EmptyDocument as error:
        return _say(error, _EMPTY)
    except DocumentUnreadable as error:
        return _say(error, _UNREADABLE)
    except OutOfDisk:
        return _DISK_FULL
    except (MemoryError, RecursionError):
        return _EXHAUSTED
    return 0


def _say(error: CallerError, code: int) -> int:
    sys.stderr.write(str(error))
    return code


if __name__ == "__main__":
    sys.exit(main())
