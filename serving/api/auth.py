"""Who may do what: `Depends(require("infer"))` gives the Principal or refuses.

A key comes in the Authorization header and nowhere else. As long as no key was created, programs of this machine need
none. Two kinds of request come from this machine and are not its own: those of a web page that the person visits
(another Origin or site, or a Host that is no name of this machine: DNS rebinding), and those that a proxy passes on for
others. Both need a key.
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

_PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""With all whose names begin with `x-forwarded`, what reverse proxies add."""
_HOW_TO_GET_A_KEY = "Create a key with `longfold keys create NAME` and send it as `Authorization: Bearer lf_...`."


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
    message = "This key is unknown, expired or revoked." if secret else "Send a key: `Authorization: Bearer lf_...`."
    if gateway.loopback_only and not await gateway.keys.any_keys():
        refusal = why_not_local(request)
        if not refusal:
            return Principal(owner=LOCAL_OWNER, key=None, scopes=ALL_SCOPES)
        message = f"{refusal} {_HOW_TO_GET_A_KEY}"
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


def why_not_local(request: Request) -> str:
    """Why this may be someone other than a program of this machine, as a sentence; empty if it is one."""
    headers = request.headers
    if request.client is not None and not _is_loopback(request.client.host):
        return "Without a key only programs of this machine are served."
    proxied = sorted(name for name in headers if name in _PROXY_HEADERS or name.startswith("x-forwarded"))
    if proxied:
        return f"The header {proxied[0]!r} says that a proxy passes this request on, for whom is not known."
    if request.scope.get("http_version") == "1.0":  # nginx passes on in HTTP/1.0, and by default adds no header at all
        return "A request in HTTP/1.0 may come through a proxy, for whom is not known."
    host = headers.get("host", "")
    if not _is_this_machine(host):
        return "The header Host is no name of this machine; ask for localhost or 127.0.0.1."
    origin, site = headers.get("origin", f"http://{host}"), headers.get("sec-fetch-site", "none")
    if origin.partition("://")[2] != host or site not in ("none", "same-origin"):
        return "A web page from elsewhere sent this request."
    return ""


def _is_this_machine(host: str) -> bool:
    """Of a Host header. One that is more than a name and a port (`someone@127.0.0.1`) is nobody's."""
    try:
        parsed = urlsplit(f"//{host}")
        return parsed.netloc == host and "@" not in host and _is_loopback(parsed.hostname or "")
    except ValueError:  # no address at all
        return False


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
