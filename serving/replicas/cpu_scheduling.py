"""Who may use a slow engine now, and how much of it: calls that stand near an answer have it nearly to themselves.

On a CPU a step that computes a prompt takes seconds, and every output that is being written waits for it: 60 tokens
of a finding beside a gate pass would take as long as the pass. So gate calls wait outside the engine while anything
more urgent is in it, only as many are let in as keep it busy, and while an answer is written a step computes little
of other prompts. A GPU's steps take milliseconds: nobody waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pipeline.dispatch.admission import AdmissionQueue
from pipeline.llm.model import PRIORITY, Call, Stage

PROMPT_TOKENS_BESIDE_AN_ANSWER = 64
"""Per step: takes about as long as the rest of it (docs/experiments.md)."""


class GateThrottle:
    """First come, first served among gate calls; everything else goes at once, and they wait until it has ended."""

    def __init__(self, *, gate_tokens: int) -> None:
        """`gate_tokens`: prompt tokens of gate calls in the engine at once, or one call."""
        self._queue = AdmissionQueue(tokens=gate_tokens)

    @asynccontextmanager
    async def take(self, call: Call) -> AsyncIterator[None]:
        """Hold a turn for the length of the block."""
        if call.priority < PRIORITY[Stage.GATE]:
            with self._queue.ahead():
                yield
        else:
            async with self._queue.slot(tokens=len(call.prompt.token_ids)):
                yield


def limit_prefill_during_decode(scheduler: Any) -> Callable[[], None]:
    """Return what is to be called before each step of the engine whose (vLLM's) `scheduler` this is."""
    full_tokens = scheduler.max_num_scheduled_tokens

    def before_step() -> None:
        running = scheduler.running
        answering = any(request.priority <= PRIORITY[Stage.REDUCE] and request.num_output_tokens for request in running)
        # Each running call takes a token of its own.
        beside_tokens = len(running) + PROMPT_TOKENS_BESIDE_AN_ANSWER
        scheduler.max_num_scheduled_tokens = min(full_tokens, beside_tokens) if answering else full_tokens

    return before_step
