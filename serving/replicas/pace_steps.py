"""How much of other prompts a slow engine computes per step: little while an answer is being written.

Every call that is being written waits for the whole step, and on a CPU a step full of prompt takes seconds. With a
little of it per step a chat or a reduce is written at nearly its own speed, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.llm.model import PRIORITY, Stage

PROMPT_TOKENS_BESIDE_AN_ANSWER = 64
"""Per step: takes about as long as the rest of it (docs/experiments.md)."""


def pace_steps(scheduler: Any) -> Callable[[], None]:
    """Return what is to be called before each step of the engine whose (vLLM's) `scheduler` this is."""
    full_tokens = scheduler.max_num_scheduled_tokens

    def before_step() -> None:
        running = scheduler.running
        answering = any(request.priority <= PRIORITY[Stage.REDUCE] and request.num_output_tokens for request in running)
        # Each running call takes a token of its own.
        beside_tokens = len(running) + PROMPT_TOKENS_BESIDE_AN_ANSWER
        scheduler.max_num_scheduled_tokens = min(full_tokens, beside_tokens) if answering else full_tokens

    return before_step
