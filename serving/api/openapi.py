"""/openapi.json: what FastAPI knows of the routes, with the errors, the key and the headers that all of them share."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_ABOUT = """Ask about documents far longer than a model's context.

Offsets count Unicode code points. Errors are RFC 9457 problems with a member `error`
as OpenAI's clients read it; `x-should-retry: false` goes with those that a retry cannot help. Every answer has an
`x-request-id`. Send `Authorization: Bearer lf_...`; without any key created, this machine needs none.
"""

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "error", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        },
        "request_id": {"type": "string"},
    },
    "example": {
        "type": "https://longfold.local/errors/file_not_found",
        "title": "File not found",
        "status": 404,
        "detail": "There is no file 'file-01K9'.",
        "error": {
            "message": "There is no file 'file-01K9'.",
            "type": "invalid_request_error",
            "param": "file_ids.0",
            "code": "file_not_found",
        },
        "request_id": "req_01K9ZJ3W5T8Q4V6X2B7N9M1C0D",
    },
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description; made once."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
        components = described.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas["Problem"] = _PROBLEM
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "lf_..."}}
        for path, operations in described["paths"].items():
            for operation in operations.values():
                _add_shared(path, operation)
        app.openapi_schema = described
    return app.openapi_schema


def _add_shared(path: str, operation: dict[str, Any]) -> None:
    media_type = "application/problem+json" if path.startswith("/v1/jobs") else "application/json"
    problem = {
        "description": "A problem",
        "content": {media_type: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    responses = operation["responses"]
    responses.pop("422", None)
    responses |= {"4XX": problem, "5XX": problem}
    if path.startswith("/v1/"):
        operation["security"] = [{"key": []}, {}]
