"""The log of the processes that serve: one JSON object a line, on standard error, with ids and without text."""

from __future__ import annotations

import json
import logging
import sys
import time


class JsonLines(logging.Formatter):
    """Time, level, logger, event, and the fields given as `extra`."""

    _KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in self._KNOWN}
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": when, "level": record.levelname.lower(), "logger": record.name, "event": record.getMessage()}
        return json.dumps(line | fields, ensure_ascii=False, default=str)


def configure_json_log(level: str) -> None:
    """For everything that this process logs, instead of the lines for people that other commands write."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It warns of every write to a client that has gone; the request's own line says 499.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
