"""What happens around every request: its id, its trace, its line in the log, its safety headers, its last resort.

A log line has the route's template, never the path: paths hold ids, queries hold positions, bodies hold documents.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
import traceback
from collections.abc import Callable
from typing import Any

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from serving.api.auth import limit_headers
from serving.api.errors import ApiError, render_error

log = logging.getLogger("longfold.http")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAFETY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
}

LONGEST_BODY_BYTES = 16 * 2**20
"""Four times a document of a million tokens in English."""

Observe = Callable[[str, str, int, float], None]
"""Method, route template, status, seconds until the answer began."""


class RequestLog:
    """Wraps the application. Routes may set `request.state.job_id`; auth sets `request.state.principal`."""

    def __init__(self, app: ASGIApp, observe: Observe = lambda *_: None) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        state: dict[str, Any] = {**scope.get("state", {}), "request_id": _request_id(request)}
        state["trace_id"], state["traceparent"] = _trace(request)
        scope["state"] = state
        exchange = _Exchange(scope, send)
        try:
            await self._app(scope, _limited(scope, receive), exchange.send)
        except ClientDisconnect:  # nobody is there to be told
            pass
        except Exception as error:  # noqa: BLE001  # the request's boundary: it is told as ours, and where it happened
            _log_fault(error, state["request_id"])
            if exchange.status is None:
                fault = ApiError(500, "A fault in Longfold itself; report it with this request's id.", "internal_error")
                await render_error(request, fault)(scope, receive, exchange.send)
        finally:
            exchange.finish(self._observe)


class _Exchange:
    """One request and its answer, as far as it has gone."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
        self._first_byte_s: float | None = None
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._first_byte_s = time.perf_counter() - self._began
            state = self._scope["state"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = state["request_id"]
            headers["traceparent"] = state["traceparent"]
            if job_id := state.get("job_id"):
                headers["x-longfold-run"] = job_id
            for name, value in {**_SAFETY_HEADERS, **await self._limits()}.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def _limits(self) -> dict[str, str]:
        """What is left to the key, with every answer to a request that may take from it."""
        principal = self._scope["state"].get("principal")
        if self._scope["method"] != "POST" or principal is None:
            return {}
        return await limit_headers(self._scope["app"].state.gateway, principal)

    def finish(self, observe: Observe) -> None:
        total_s = time.perf_counter() - self._began
        state, method = self._scope["state"], self._scope["method"]
        route = getattr(self._scope.get("route"), "path", "") or "unmatched"
        status = self.status or 499  # the client left before there was an answer
        observe(method, route, status, self._first_byte_s or total_s)
        principal = state.get("principal")
        log.info(
            "request.finished",
            extra={
                "method": method,
                "route": route,
                "status": status,
                "ms": round(total_s * 1000, 1),
                "request_id": state["request_id"],
                "trace_id": state["trace_id"],
                "job_id": state.get("job_id", ""),
                "key_id": principal.key_id if principal else "",
            },
        )


def _limited(scope: Scope, receive: Receive) -> Receive:
    """A body that is read into memory may not be long; uploads have a limit of their own."""
    if (scope["method"], scope["path"]) == ("POST", "/v1/files"):
        return receive
    read_bytes = 0

    async def limited() -> Message:
        nonlocal read_bytes
        message = await receive()
        read_bytes += len(message.get("body", b""))
        if read_bytes > LONGEST_BODY_BYTES:
            most = f"A request has at most {LONGEST_BODY_BYTES >> 20} MiB"
            raise ApiError(413, f"{most}; upload the document to /v1/files and name it.", "request_too_large")
        return message

    return limited


def _request_id(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{ULID()}"


def _trace(request: Request) -> tuple[str, str]:
    """The trace id and the header to pass on: the caller's trace, or a new one, with a span of our own."""
    match = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    valid = match is not None and set(match[1]) != {"0"} and set(match[2]) != {"0"}
    trace_id, flags = (match[1], match[3]) if match and valid else (secrets.token_hex(16), "00")
    return trace_id, f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"


def _log_fault(error: Exception, request_id: str) -> None:
    """Where it happened, without the message: that of a codec or a validator quotes what it choked on."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    log.error("request.failed", extra={"error": type(error).__name__, "at": frames[-12:], "request_id": request_id})
