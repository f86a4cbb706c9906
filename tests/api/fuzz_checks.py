"""A check of schemathesis: what the description allows is refused for a reason that no description can hold."""

from __future__ import annotations

from typing import Any

import schemathesis

ABOUT_THE_SHAPE = {
    "invalid_json",
    "invalid_request",
    "invalid_value",
    "missing_required_parameter",
    "unknown_parameter",
    "unsupported_parameter",
}
"""Codes of faults that a schema describes. Others need the served model, the state of a job or the file's content."""
ABOUT_THE_MODEL = ("longfold", "messages[", "input[", "response_format", "text.format")
"""What one model reads and another refuses: files and the options of a strategy, JSON of the model itself."""


@schemathesis.check
def refused_only_for_a_reason(ctx: Any, response: Any, case: Any) -> None:
    """Of data that the description allows."""
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code not in (400, 413, 415, 422):
        return
    error = response.json()["error"]
    told = f"{response.status_code} {error['code']} ({error['param']}): {error['message']}"
    if error["code"] == "unsupported_parameter" and (error["param"] or "").startswith(ABOUT_THE_MODEL):
        return
    assert error["code"] not in ABOUT_THE_SHAPE, f"what the description allows was refused: {told}"
