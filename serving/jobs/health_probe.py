"""Whether the model answers: told by what comes back from it, and by a call of our own when nothing else does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pipeline.llm.model import Call, CallFailed, Dispatcher, Outcome, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.tokenizer import Tokenizer

READY_S = 60.0
"""How long a call that came back speaks for the model."""
CANARY_IDLE_S = 30.0
SILENCE_S = 20.0
"""No call of any job came back for so long: then a lost call tells of an outage, and not of the call."""


class HealthProbe:
    """A dispatcher that notes when calls come back."""

    def __init__(
        self, inner: Dispatcher, *, idle_s: float = CANARY_IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins as ready: replicas count as started only when they have generated."""
        self._inner = inner
        self._idle_s = idle_s
        self._clock = clock
        self._last_s = clock()
        self._away = False
        self.trouble = ""
        """Why the last canary failed; empty if it did not."""

    @property
    def ready(self) -> bool:
        return not self._away and self._clock() - self._last_s < READY_S

    @property
    def is_stalled(self) -> bool:
        return self._clock() - self._last_s > SILENCE_S

    def mark_down(self) -> None:
        """A job was given back because of silence: until something comes back, no job is tried on this model."""
        self._away = True

    @property
    def window(self) -> int:
        return self._inner.window

    async def complete(self, call: Call) -> Outcome:
        outcome = await self._inner.complete(call)
        if not isinstance(outcome, CallFailed):
            self._last_s = self._clock()
            self._away = False
            self.trouble = ""
        return outcome

    async def check(self, tokenizer: Tokenizer) -> None:
        """Ask the model for one token if nothing came back lately."""
        if not self._away and self._clock() - self._last_s < self._idle_s:
            return
        try:
            async with asyncio.timeout(READY_S):
                outcome = await self.complete(_canary(tokenizer))
                self.trouble = outcome.message if isinstance(outcome, CallFailed) else ""
        except TimeoutError:
            self.trouble = f"The model did not answer within {READY_S:.0f} s."


def _canary(tokenizer: Tokenizer) -> Call:
    prompt = chat_prompt(tokenizer, own=[tokenizer.encode_content("Hello")])
    return Call(prompt=prompt, sampling=Sampling(max_output_tokens=1), stage=Stage.DIRECT)
