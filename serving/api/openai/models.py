"""Models, as OpenAI's clients list them: a strategy's name asks for documents to be read in that way, the served
model's own name for a conversation with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from pipeline.strategies import STRATEGIES
from serving.api.auth import require
from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway, Principal
from serving.session import OpenModel

router = APIRouter(tags=["openai"])

STRATEGY_NAMES = tuple(dict.fromkeys(("auto", *STRATEGIES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What a model's name stands for."""

    id: str
    strategy: str
    """Empty: the served model itself."""


def choose_model(name: str, served: str) -> ModelChoice:
    """Find `name` among the strategies and the served model. Raises ApiError 404 with the known names.

    `chain_of_agents` and `chain-of-agents` are one name. `mapreduce:<model>` is `mapreduce` if that model is served.
    """
    if name == served:
        return ModelChoice(id=served, strategy="")
    strategy, colon, model = name.partition(":")
    if not colon or model == served:
        spelled = {_plain(known): known for known in STRATEGY_NAMES}
        if (known := spelled.get(_plain(strategy))) is not None:
            return ModelChoice(id=known, strategy=known)
    known_names = ", ".join([*STRATEGY_NAMES, served])
    raise ApiError(
        404,
        f"The model {name[:128]!r} is not known. The models are {known_names}; a strategy's name may be followed by "
        f"':{served}'.",
        "model_not_found",
        "model",
    )


@router.get("/v1/models", summary="The strategies, auto, and the served model itself")
async def list_models(
    gateway: CurrentGateway, principal: Annotated[Principal, Depends(require("infer"))]
) -> dict[str, Any]:
    allowed = principal.key.models if principal.key else ()
    names = [*STRATEGY_NAMES, gateway.model.profile.name]
    return {"object": "list", "data": [_record(n, gateway.model) for n in names if not allowed or n in allowed]}


@router.get("/v1/models/{model:path}", summary="One model")
async def get_model(
    model: str, gateway: CurrentGateway, principal: Annotated[Principal, Depends(require("infer"))]
) -> dict[str, Any]:
    choice = choose_model(model, gateway.model.profile.name)
    principal.check_model(choice.id)
    return _record(choice.id, gateway.model) | {"id": model}


def _record(name: str, model: OpenModel) -> dict[str, Any]:
    profile = model.profile
    record = {
        "id": name,
        "object": "model",
        "created": _created_unix_s(profile.path),
        "owned_by": "longfold",
    }
    if name == profile.name:
        return record | {"max_model_len": profile.context_tokens, "longfold": {"kind": "pass_through"}}
    return record | {
        "longfold": {
            "kind": "strategy",
            "served_model": profile.name,
            "steps": STRATEGIES[name].steps,
            "options": STRATEGIES[name].options,
        }
    }


def _created_unix_s(directory: Path) -> int:
    """When the model was brought to this machine; clients expect a number."""
    try:
        return int(directory.stat().st_mtime)
    except OSError:
        return 0


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
