"""Server-sent events as a response: keep-alive comments, a limit on how long a reader may stall, a goodbye.

Written here because `fastapi.sse` breaks a `data:` line at every line end that Unicode knows (U+2028, U+0085), which
JSON holds as they are: what arrives is then no JSON. Its routes are either streams or not, while OpenAI's are both, and
it lets a reader stall for ever. sse-starlette logs every chunk at debug level, answers and quotes included.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from serving.api.errors import Stopping

log = logging.getLogger("longfold.events")

Item = TypeVar("Item")

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


async def until_stopping(
    items: AsyncIterator[Item], stopping: asyncio.Event | None, idle_s: float | None = None
) -> AsyncGenerator[Item | None, None]:
    """The items; None whenever there was none for `idle_s`. Raises Stopping as soon as the gateway is told to end."""
    stopped = asyncio.ensure_future(stopping.wait()) if stopping else None
    following: asyncio.Future[Item | None] | None = None
    async with aclosing(items) as source:  # type: ignore[type-var]  # callers give generators
        try:
            while True:
                following = following or asyncio.ensure_future(anext(source, None))
                waited: set[asyncio.Future[Any]] = {following, stopped} if stopped else {following}
                await asyncio.wait(waited, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    item, following = following.result(), None
                    if item is None:
                        return
                    yield item
                elif stopped and stopped.done():
                    raise Stopping("The gateway is stopping; the job goes on. Ask again to wait for it.")
                else:
                    yield None
        finally:
            left = [future for future in (following, stopped) if future]
            for future in left:
                future.cancel()
            await asyncio.gather(*left, return_exceptions=True)


class EventStream(StreamingResponse):
    """Sends `frames` as they come. It ends with them, with the reader, or with a comment when `stopping` is set."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        stopping: asyncio.Event | None,
        *,
        status_code: int = 200,  # FastAPI reads the default when it describes the route
        keep_alive_s: float | None = None,
        send_timeout_s: float | None = None,
        keep_alive_text: Callable[[], str] = lambda: "ping",
    ) -> None:
        super().__init__(frames, status_code, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        self.frames = frames
        self.stopping = stopping
        self.keep_alive_s = KEEP_ALIVE_S if keep_alive_s is None else keep_alive_s
        self.send_timeout_s = SEND_TIMEOUT_S if send_timeout_s is None else send_timeout_s
        self.keep_alive_text = keep_alive_text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Starlette's own cancels what it leaves again and again, so that generators cannot clean up."""
        streaming = asyncio.create_task(self.stream_response(send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (streaming, leaving):
                task.cancel()
            await asyncio.gather(streaming, leaving, return_exceptions=True)
        if not streaming.cancelled():
            streaming.result()

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self.send_timeout_s):
                await send(message)

        try:
            await send_in_time({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    await send_in_time({"type": "http.response.body", "body": chunk, "more_body": True})
            await send_in_time({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("stream.stalled")  # the server closes a response that was not finished

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(until_stopping(self.frames, self.stopping, self.keep_alive_s)) as frames:
                async for chunk in frames:
                    yield comment(self.keep_alive_text()) if chunk is None else chunk
        except Stopping:
            yield comment("the gateway is stopping; resume where you are")
