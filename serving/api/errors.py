"""Errors as HTTP: one table from the classes of `pipeline.errors` to a status, a type and a code.

A body is an RFC 9457 problem with one more member, `error`, which is what OpenAI's clients read. 409 is never sent and
`x-should-retry: false` goes with whatever a retry cannot help: those clients retry silently, and a run is expensive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match

from pipeline import errors

PROBLEM_BASE = "https://longfold.local/errors/"
_RETRY_AFTER_S = 1.0
_LONGEST_RETRY_S = 60
"""OpenAI's clients wait for a Retry-After of up to two minutes; a longer one is for a person to act on."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    status: int
    type: str
    code: str


_REQUEST, _LIMIT, _SERVER = "invalid_request_error", "rate_limit_error", "server_error"

ERROR_TABLE: Mapping[type[errors.LongfoldError], ErrorRow] = {
    errors.LongfoldError: ErrorRow(500, _SERVER, "internal_error"),
    errors.CallerError: ErrorRow(400, _REQUEST, "invalid_request"),
    errors.DocumentUnreadable: ErrorRow(422, _REQUEST, "document_unreadable"),
    errors.EmptyDocument: ErrorRow(422, _REQUEST, "empty_document"),
    errors.QuestionTooLong: ErrorRow(422, _REQUEST, "question_too_long"),
    errors.UnknownName: ErrorRow(404, _REQUEST, "unknown_name"),
    errors.SettingInvalid: ErrorRow(422, _REQUEST, "setting_invalid"),
    errors.ContextTooSmall: ErrorRow(422, _REQUEST, "context_too_small"),
    errors.ModelIncomplete: ErrorRow(503, _SERVER, "model_incomplete"),
    errors.NothingToResume: ErrorRow(404, _REQUEST, "nothing_to_resume"),
    errors.PromptTooLong: ErrorRow(422, _REQUEST, "prompt_too_long"),
    errors.TemplateRefused: ErrorRow(422, _REQUEST, "template_refused"),
    errors.UploadTooLarge: ErrorRow(413, _REQUEST, "upload_too_large"),
    errors.IdempotencyMismatch: ErrorRow(422, _REQUEST, "idempotency_mismatch"),
    errors.WrongState: ErrorRow(422, _REQUEST, "wrong_state"),
    errors.TooManySteps: ErrorRow(422, _REQUEST, "too_many_steps"),
    errors.StateInvalid: ErrorRow(422, _REQUEST, "state_invalid"),
    errors.DatabaseUnusable: ErrorRow(503, _SERVER, "database_unusable"),
    errors.DocumentTooLong: ErrorRow(413, _REQUEST, "document_too_long"),
    errors.CapacityError: ErrorRow(503, _SERVER, "no_capacity"),
    errors.ReplicaUnavailable: ErrorRow(503, _SERVER, "replica_unavailable"),
    errors.CallTimedOut: ErrorRow(504, _SERVER, "call_timed_out"),
    errors.Overloaded: ErrorRow(429, _LIMIT, "overloaded"),
    errors.OutOfDisk: ErrorRow(507, _SERVER, "disk_full"),
    errors.OutOfMemory: ErrorRow(503, _SERVER, "out_of_memory"),
    errors.NetworkUnavailable: ErrorRow(503, _SERVER, "network_unavailable"),
    errors.DatabaseBusy: ErrorRow(503, _SERVER, "database_busy"),
    errors.QuotaExceeded: ErrorRow(429, _LIMIT, "rate_limit_exceeded"),
    errors.ModelError: ErrorRow(502, _SERVER, "model_error"),
    errors.MalformedOutput: ErrorRow(502, _SERVER, "malformed_output"),
    errors.CollapseStalled: ErrorRow(502, _SERVER, "collapse_stalled"),
    errors.InternalError: ErrorRow(500, _SERVER, "internal_error"),
    errors.LeaseLost: ErrorRow(500, _SERVER, "lease_lost"),
    errors.ContextOverflow: ErrorRow(500, _SERVER, "context_overflow"),
}

_BY_STATUS = {
    400: ErrorRow(400, _REQUEST, "invalid_request"),
    401: ErrorRow(401, "authentication_error", "invalid_api_key"),
    403: ErrorRow(403, "permission_error", "insufficient_scope"),
    404: ErrorRow(404, _REQUEST, "not_found"),
    405: ErrorRow(405, _REQUEST, "method_not_allowed"),
    413: ErrorRow(413, _REQUEST, "too_large"),
    415: ErrorRow(415, _REQUEST, "unsupported_media_type"),
    422: ErrorRow(422, _REQUEST, "invalid_request"),
    429: ErrorRow(429, _LIMIT, "rate_limit_exceeded"),
    503: ErrorRow(503, _SERVER, "no_capacity"),
}


class ApiError(HTTPException):
    """An answer that is an error. `retry` says whether the same request may succeed soon."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "",
        param: str | None = None,
        retry: bool = False,
        *,
        type: str = "",  # noqa: A002  # the name it has in the body
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        assert status != 409, "OpenAI's clients retry a 409"
        row = _BY_STATUS.get(status, ErrorRow(status, _REQUEST if status < 500 else _SERVER, "error"))
        super().__init__(status, message, dict(headers or {}))
        self.message = message
        self.code = code or row.code
        self.type = type or row.type
        self.param = param
        self.retry = retry and (retry_after_s or 0) <= _LONGEST_RETRY_S
        self.retry_after_s = retry_after_s

    def body(self, request_id: str = "") -> dict[str, Any]:
        """The problem; its `error` alone is what a stream of chat chunks carries when it breaks."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        title = self.code.replace("_", " ").capitalize()
        problem = {"type": PROBLEM_BASE + self.code, "title": title, "status": self.status_code}
        return problem | {"detail": self.message, "error": error, "request_id": request_id}


class Stopping(ApiError):
    """The process was asked to end; another one will answer."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message, "stopping", retry=True, retry_after_s=2)


def find_row(error: type[errors.LongfoldError]) -> ErrorRow:
    """The row of the class, or of the nearest one it derives from."""
    return next(ERROR_TABLE[base] for base in error.__mro__ if base in ERROR_TABLE)


def from_longfold(error: errors.LongfoldError, param: str | None = None) -> ApiError:
    """A typed error as an answer. Only the moment's faults are worth a retry: the model was asked again already."""
    row = find_row(type(error))
    retry = isinstance(error, errors.CapacityError) and error.retryable
    after = _RETRY_AFTER_S if retry else None
    if isinstance(error, errors.QuotaExceeded):  # it knows when, and whether at all
        retry, after = error.retry_after_s is not None, error.retry_after_s
    return ApiError(row.status, str(error), row.code, param, retry, type=row.type, retry_after_s=after)


def from_record(record: Mapping[str, Any]) -> ApiError:
    """The error of a failed job (`Job.error`) as an answer. To ask again is to run again: no client does that alone."""
    named = getattr(errors, str(record.get("type", "")), errors.InternalError)
    known = isinstance(named, type) and issubclass(named, errors.LongfoldError)
    row = find_row(named if known else errors.InternalError)
    return ApiError(row.status, str(record.get("message", "")), row.code, type=row.type)


def render_error(request: Request, error: ApiError) -> Response:
    """The whole answer: body, content type of the surface, and whether and when to come back."""
    state = request.scope.get("state", {})
    headers = dict(error.headers or {})
    if not error.retry:
        headers["x-should-retry"] = "false"
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s + 0.5)))
        headers["retry-after-ms"] = str(max(1, round(error.retry_after_s * 1000)))
    native = request.scope["path"].startswith("/v1/jobs")
    return Response(
        json.dumps(error.body(state.get("request_id", "")), ensure_ascii=False),
        error.status_code,
        headers,
        "application/problem+json" if native else "application/json",
    )


def install_error_handlers(app: FastAPI) -> None:
    """Give every error the same shape, the framework's own included."""

    async def on_api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return render_error(request, error)

    async def on_longfold_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.LongfoldError)
        return render_error(request, from_longfold(error))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return render_error(request, explain_invalid(error))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        return render_error(request, _from_framework(request, error))

    app.add_exception_handler(ApiError, on_api_error)
    app.add_exception_handler(errors.LongfoldError, on_longfold_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(StarletteHTTPException, on_http_error)


_NO_OBJECT = frozenset({"missing", "model_attributes_type"})
"""Faults of a body as a whole that is empty, of another JSON type, or sent as another media type."""


def explain_invalid(error: RequestValidationError) -> ApiError:
    """Name each field at fault and what is expected of it; what was sent is not repeated, it may be a document."""
    faults = error.errors()
    places = [".".join(str(part) for part in fault["loc"][1:]) for fault in faults]
    if broken := next((fault for fault in faults if fault["type"] == "json_invalid"), None):
        return not_json(broken.get("ctx", {}).get("error", ""))
    if any(fault["loc"] == ("body",) and fault["type"] in _NO_OBJECT for fault in faults):
        message = "The body must be a JSON object, sent with the header Content-Type: application/json."
        return ApiError(422, message, "invalid_request")
    said = [str(fault["msg"]).removeprefix("Value error, ") for fault in faults]
    messages = [f"{place}: {words}" if place else words for place, words in zip(places, said, strict=True)]
    return ApiError(422, "; ".join(messages[:10]) + ".", "invalid_request", next(filter(None, places), None))


def not_json(why: str = "") -> ApiError:
    """`why` is the parser's word, which quotes nothing."""
    return ApiError(400, f"The body is not JSON that can be read{': ' + why if why else ''}.", "invalid_json")


def _from_framework(request: Request, error: StarletteHTTPException) -> ApiError:
    if error.status_code == 400:  # what the framework says of a body that it cannot even decode
        return not_json()
    messages = {
        404: "There is nothing at this path; /openapi.json lists the paths.",
        405: f"{request.method} is not possible here; the header `allow` lists what is.",
    }
    message = messages.get(error.status_code, str(error.detail))
    headers = {"allow": ", ".join(_methods_here(request))} if error.status_code == 405 else error.headers
    return ApiError(error.status_code, message, headers=headers)


def _methods_here(request: Request) -> list[str]:
    """Of all routes with this path; the framework names those of the first one."""
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
