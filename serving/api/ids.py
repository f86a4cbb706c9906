"""The names of a job. One ULID has three spellings, one for each surface; each of them is understood everywhere."""

from __future__ import annotations

import re

from serving.api.errors import ApiError

PREFIX = {"job": "job_", "response": "resp_", "chat": "chatcmpl-"}
_SPELLING = re.compile(r"(?:job_|resp_|chatcmpl-)?([0-9A-HJKMNP-TV-Z]{26})", re.IGNORECASE)


def bare_id(spelled: str) -> str:
    """The ULID in `job_X`, `resp_X` or `chatcmpl-X`. Raises ApiError 404: what cannot be an id names no job."""
    match = _SPELLING.fullmatch(spelled)
    if match is None:
        raise no_such_job(spelled)
    return match[1].upper()


def no_such_job(spelled: str) -> ApiError:
    return ApiError(404, f"There is no job {spelled[:64]!r}.", "job_not_found", "id")
