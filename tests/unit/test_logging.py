"""The log of the processes that serve, for machines to read."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

SERVICE = """
    import logging
    from serving.logging import configure_json_log

    logging.basicConfig(format="%(levelname)s %(message)s")  # as a command has set it up before
    configure_json_log("info")
    logging.getLogger("serving.jobs.runner").info("job.claimed", extra={"job_id": "01K", "attempt": 2})
    logging.getLogger("longfold.http").debug("request.detail")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    logging.getLogger("some.library").warning("a line\\nof two lines")
"""


def test_every_line_is_an_object_whoever_writes_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SERVICE)], capture_output=True, text=True, check=True, timeout=60
    )
    first, second = [json.loads(line) for line in done.stderr.splitlines()]
    assert (first["event"], first["job_id"], first["attempt"], first["level"]) == ("job.claimed", "01K", 2, "info")
    assert (second["event"], second["logger"]) == ("a line\nof two lines", "some.library")
