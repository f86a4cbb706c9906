"""How connections are served: no signal handlers of its own, no trust in proxies, and a limit on slow headers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("longfold.http")

HEADERS_S = 15.0
"""In which the headers of a request must be complete. Uvicorn has no such limit: a connection that never says what it
wants would be held for ever."""


class HeaderDeadline(HttpToolsProtocol):
    """Closes a connection whose request did not come as far as its body in time.

    The time runs from the connection, or from the first byte of its next request, until that request's headers are
    complete; `cycle` is then another one. Between requests uvicorn's own keep-alive limit holds.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_deadline()
        elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(HEADERS_S, self._close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        log.info("connection.slow_headers")
        self.transport.close()


class GatewayServer(uvicorn.Server):
    """Uvicorn without its signal handlers: what ends is more than the HTTP server."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: FastAPI, *, shutdown_timeout_s: int) -> GatewayServer:
    """The HTTP server of a gateway. Requests with proxy headers keep their real peer, and there are no WebSockets."""
    return GatewayServer(
        uvicorn.Config(
            app,
            http=HeaderDeadline,
            ws="none",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=shutdown_timeout_s,
        )
    )
