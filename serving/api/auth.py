"""Who may do what: `Depends(require("infer"))` gives the Principal or refuses.

A key comes in the Authorization header and nowhere else. As long as no key was created, whoever sits at this machine
needs none. A web page the person visits does not sit at this machine, though its requests come from there: those are
told by their Origin and by a Host that is no name of this machine (DNS rebinding).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request

from pipeline.errors import CapacityError
from serving.api.errors import ApiError
from serving.api.gateway import ALL_SCOPES, Gateway, Principal, get_gateway
from serving.jobs.job import LOCAL_OWNER


def require(scope: str) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that lets a request pass if its key has `scope`."""

    async def authorise(request: Request) -> Principal:
        principal = await identify(request)
        request.state.principal = principal
        if scope not in principal.scopes:
            raise ApiError(403, f"This key lacks the scope {scope!r}; ask for one that has it.", "insufficient_scope")
        return principal

    return authorise


async def identify(request: Request) -> Principal:
    """Find out who is asking. Raises ApiError 401 for a key that is missing, wrong, expired or revoked."""
    gateway = get_gateway(request)
    secret = _bearer(request)
    if secret.startswith("lf_"):
        key = await gateway.keys.verify(secret)
        if key is not None:
            return Principal(owner=key.owner, key=key, scopes=key.scopes)
    if gateway.loopback_only and is_local(request) and not await gateway.keys.any_keys():
        return Principal(owner=LOCAL_OWNER, key=None, scopes=ALL_SCOPES)
    message = "This key is unknown, expired or revoked." if secret else "Send a key: `Authorization: Bearer lf_...`."
    raise ApiError(401, message, "invalid_api_key", headers={"www-authenticate": 'Bearer realm="longfold"'})


async def limit_headers(gateway: Gateway, principal: Principal) -> dict[str, str]:
    """What is left of the key's limits, under the names that OpenAI's clients know; nothing for a key without any."""
    key = principal.key
    if key is None or (key.requests_per_minute is None and key.tokens_per_day is None):
        return {}
    try:
        left = await gateway.keys.remaining(key)
    except CapacityError:  # the answer matters more
        return {}
    headers = {}
    for what, limit, remaining, reset_s in (
        ("requests", left.requests_limit, left.requests, left.requests_reset_s),
        ("tokens", left.tokens_limit, left.tokens, left.tokens_reset_s),
    ):
        if limit is not None:
            headers[f"x-ratelimit-limit-{what}"] = str(limit)
            headers[f"x-ratelimit-remaining-{what}"] = str(remaining)
            headers[f"x-ratelimit-reset-{what}"] = f"{math.ceil(reset_s)}s"
    return headers


def is_local(request: Request) -> bool:
    """Whether a program of this machine asks, rather than a proxy for others or a web page from elsewhere."""
    headers = request.headers
    if "forwarded" in headers or "x-forwarded-for" in headers:
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    same_origin = origin is None or urlsplit(origin).netloc == host
    peer = request.client is None or _is_loopback(request.client.host)
    return peer and same_origin and _is_loopback(urlsplit(f"//{host}").hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer(request: Request) -> str:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
