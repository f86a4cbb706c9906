"""What a run will take, told before it is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.documents.document import Document
    from pipeline.run.plan import Plan
    from pipeline.run.request import Request
    from serving.session import OpenModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bounds of a run: what the document decides on the way can only lower them."""

    plan: Plan
    seconds_low: float | None
    """The document read once and nothing found; None if this machine was never measured with this model."""
    seconds_high: float | None
    """Every call made, none of its tokens found in a cache."""


def estimate(model: OpenModel, document: Document, request: Request, tokens_per_s: float | None) -> Estimate:
    """Estimate for a machine that has nothing else to do. Takes as long as splitting the document: call it in a thread.

    Raises CallerError for a request that cannot be served.
    """
    plan = model.plan(document, request)
    low, high = plan_seconds(plan, request, tokens_per_s)
    return Estimate(plan=plan, seconds_low=low, seconds_high=high)


def plan_seconds(plan: Plan, request: Request, tokens_per_s: float | None) -> tuple[float | None, float | None]:
    """Least and most, as in `Estimate`. The request's limits shorten reading; what comes after it is short."""
    if not tokens_per_s:
        return None, None
    max_s = request.limits.wall_time_s
    min_tokens, max_tokens = plan.document_tokens, plan.prompt_tokens + plan.output_tokens
    if request.limits.tokens is not None:
        min_tokens, max_tokens = min(min_tokens, request.limits.tokens), min(max_tokens, request.limits.tokens)
    low, high = min_tokens / tokens_per_s, max_tokens / tokens_per_s
    return (low, high) if max_s is None else (min(low, max_s), min(high, max_s))
