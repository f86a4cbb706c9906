"""The test double: a model whose outputs are scripted or computed, which can fail, stall and babble.

It ships with the package, so that the real deployment, real Ray tasks and real retries can be tested without an
engine. It never stands in for a model outside tests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.errors import LongfoldError, ReplicaUnavailable
from pipeline.llm.model import Call, Completion, FinishReason, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted outcome."""

    text: str = ""
    choice_logprobs: tuple[float, ...] = ()
    finish_reason: FinishReason = "stop"
    delay_s: float = 0.0
    error: LongfoldError | None = None
    stalls: bool = False
    """Never returns, as an engine that hangs."""


Script = Callable[[Call, int], Reply]
"""From a call and how often this very call was made before, to its reply."""


@dataclass(slots=True)
class ScriptedModel:
    """Answers each call as `script` says, and remembers what it was asked."""

    script: Script
    calls: list[Call] = field(default_factory=list)
    running: int = 0
    max_running: int = 0
    _seen: dict[str, int] = field(default_factory=dict)

    async def complete(self, call: Call) -> Completion:
        self.calls.append(call)
        key = call.key("scripted")
        times = self._seen.get(key, 0)
        self._seen[key] = times + 1
        reply = self.script(call, times)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            if reply.stalls:
                await asyncio.Event().wait()
            if call.on_text is not None:
                call.on_text(reply.text[: len(reply.text) // 2])
            await asyncio.sleep(reply.delay_s)
            if reply.error is not None:
                raise reply.error
            return completion_of(call, reply)
        finally:
            self.running -= 1


def completion_of(call: Call, reply: Reply) -> Completion:
    """What a reply without an error becomes."""
    usage = Usage(calls=1, prompt_tokens=len(call.prompt.token_ids), output_tokens=max(1, len(reply.text) // 4))
    return Completion(
        text=reply.text,
        finish_reason=reply.finish_reason,
        usage=usage,
        choice_logprobs=reply.choice_logprobs,
        seconds=reply.delay_s,
    )


def seeded_script(seed: int = 0, fail_share: float = 0.0, delay_s: float = 0.0) -> Script:
    """Plausible outputs computed from the call's content alone: the same call always gives the same reply.

    A share of the calls fails at the first attempt with a retryable error.
    """

    def script(call: Call, times: int) -> Reply:
        draw = _draw(call, seed)
        wait_s = delay_s * (0.5 + draw)
        if times == 0 and _draw(call, seed + 1) < fail_share:
            return Reply(error=ReplicaUnavailable("scripted failure"), delay_s=wait_s)
        if call.sampling.choices:
            yes = math.log(0.05 + 0.9 * draw)
            return Reply(choice_logprobs=(yes, math.log(0.95 - 0.9 * draw)), delay_s=wait_s)
        return Reply(text=_json_output(call, draw), delay_s=wait_s)

    return script


def _json_output(call: Call, draw: float) -> str:
    """An object for the call's schema: the first number of each list, and a text that tells calls apart."""
    schema = json.loads(call.sampling.json_schema or '{"properties": {}}')
    values = {
        "integer": 1 + int(draw * 5) % 5,
        "string": f"{call.stage} says {draw:.6f}",
        "array": [1],
        "boolean": draw < 0.5,
    }
    fields = {
        name: kind["enum"][0] if "enum" in kind else values[kind["type"]] for name, kind in schema["properties"].items()
    }
    if "quotes" in fields:
        fields["quotes"] = []
    return json.dumps(fields)


def _draw(call: Call, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}\0{call.key('draw')}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
