"""Server-sent events as a response: keep-alive comments, a limit on how long a reader may stall, a goodbye.

Written here because the library's version logs every chunk at debug level (answers and quotes would reach the log)
and replaces a method of uvicorn when it is imported.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

log = logging.getLogger("longfold.events")

KEEP_ALIVE_S = 15.0
"""Half of the shortest idle limit that proxies commonly have (30 s)."""
SEND_TIMEOUT_S = 30.0
"""A reader that takes nothing for so long is let go; it resumes where it was."""
EVENT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
MAY_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": EVENT_SCHEMA}}}}
"""For the description of a route that answers with a stream if it is asked to."""
_DUMP = {"ensure_ascii": False, "separators": (",", ":")}


def frame(data: Mapping[str, Any] | str, *, event: str = "", id: int | None = None) -> bytes:  # noqa: A002
    """One event on the wire. A string goes out as it is and must hold no line break."""
    text = data if isinstance(data, str) else json.dumps(data, **_DUMP)  # type: ignore[arg-type]
    lines = [f"id: {id}"] if id is not None else []
    lines += [f"event: {event}"] if event else []
    return "\n".join([*lines, f"data: {text}", "", ""]).encode()


def comment(text: str) -> bytes:
    """A line that readers skip."""
    return f": {text}\n\n".encode()


class EventStream(Response):
    """Sends `frames` as they come. It ends with them, with the reader, or with a comment when `stopping` is set."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        stopping: asyncio.Event,
        *,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        keep_alive_s: float | None = None,
        send_timeout_s: float | None = None,
        keep_alive_text: Callable[[], str] = lambda: "ping",
    ) -> None:
        self.frames = frames
        self.stopping = stopping
        self.keep_alive_s = KEEP_ALIVE_S if keep_alive_s is None else keep_alive_s
        self.send_timeout_s = SEND_TIMEOUT_S if send_timeout_s is None else send_timeout_s
        self.keep_alive_text = keep_alive_text
        self.status_code = status_code
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        writer = _Writer(send, self.send_timeout_s)
        endings = [
            asyncio.create_task(self._pass_on(writer)),
            asyncio.create_task(self._keep_alive(writer)),
            asyncio.create_task(self._until_stopping(writer)),
            asyncio.create_task(_until_disconnect(receive)),
        ]
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in endings:
                task.cancel()
            await asyncio.gather(*endings, return_exceptions=True)
        for task in done:
            if isinstance(error := task.exception(), TimeoutError):
                log.info("stream.stalled")
                return  # the server closes a response that was not finished
            if error is not None:
                raise error
        with suppress(TimeoutError):
            await writer.send(b"", more=False)

    async def _pass_on(self, writer: _Writer) -> None:
        async with aclosing(self.frames) as frames:  # type: ignore[type-var]  # routes give generators
            async for each in frames:
                await writer.send(each)

    async def _keep_alive(self, writer: _Writer) -> None:
        while True:
            quiet_s = time.monotonic() - writer.last_sent
            if quiet_s >= self.keep_alive_s:
                await writer.send(comment(self.keep_alive_text()))
            else:
                await asyncio.sleep(self.keep_alive_s - quiet_s)

    async def _until_stopping(self, writer: _Writer) -> None:
        await self.stopping.wait()
        await writer.send(comment("the gateway is stopping; resume where you are"))


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Writer:
    """One message at a time, each within the time limit."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self.last_sent = time.monotonic()

    async def send(self, body: bytes, *, more: bool = True) -> None:
        async with self._turn, asyncio.timeout(self._timeout_s):
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
            self.last_sent = time.monotonic()
