"""/v1/usage: what a key's jobs took, day by day."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from serving.api.auth import require
from serving.api.gateway import CurrentGateway, Principal

router = APIRouter(tags=["keys"])


@router.get("/v1/usage")
async def get_usage(
    gateway: CurrentGateway, principal: Annotated[Principal, Depends(require("infer"))]
) -> dict[str, Any]:
    """The calling key's limits, what is left of them, and its days (UTC), newest first."""
    key = principal.key
    if key is None:
        return {"object": "usage", "key_id": None, "remaining": None, "days": []}
    return {
        "object": "usage",
        "key_id": key.id,
        "remaining": asdict(await gateway.keys.remaining(key)),
        "days": [asdict(day) for day in await gateway.keys.usage(key.id)],
    }
