"""What an engine process wrote before it failed to start: vLLM's own exception says only that it did.

A replica's standard error is a file of Ray's, and its children write there too.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

_ERROR = re.compile(r"\b((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (\S.*)")
_SAYS_NOTHING = ("Engine core initialization failed", "WorkerProc initialization failed")
_TAIL_BYTES = 1 << 18
_MAX_CHARS = 500


class LastWords:
    """Standard error from now on."""

    def __init__(self, descriptor: int = 2) -> None:
        self._path = Path(f"/proc/self/fd/{descriptor}")
        self._start = self._size()

    def reason(self) -> str:
        """The last error in it that names a cause; empty if there is none, or if it is no file."""
        size = self._size()
        if size <= self._start:
            return ""
        try:
            with self._path.open("rb") as file:
                file.seek(max(self._start, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        found = [match for match in _ERROR.finditer(text) if not match[2].startswith(_SAYS_NOTHING)]
        return f"{found[-1][1]}: {found[-1][2]}"[:_MAX_CHARS] if found else ""

    def _size(self) -> int:
        try:
            found = self._path.stat()
        except OSError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
