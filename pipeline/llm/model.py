"""The contract with a language model: one call in, one completion or one failure out.

A `Model` is a vLLM engine, a replica, a pool of replicas, or a scripted model in the tests. All records are
frozen and picklable (a call without its `on_text`), because Ray carries them between processes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

FinishReason = Literal["stop", "length", "repetition"]


class Stage(StrEnum):
    """The step of a run that a call belongs to; usage and time are reported per stage."""

    DIRECT = "direct"
    GATE = "gate"
    MAP = "map"
    SUPPORT = "support"
    COLLAPSE = "collapse"
    REDUCE = "reduce"


PRIORITY = {
    Stage.REDUCE: 0,
    Stage.DIRECT: 0,
    Stage.COLLAPSE: 1,
    Stage.SUPPORT: 1,
    Stage.MAP: 2,
    Stage.GATE: 3,
}
"""Order in the engine's queue, lowest first: what stands nearest to an answer goes first."""
BULK = frozenset({Stage.GATE, Stage.MAP})
"""The many calls that read the document. They wait for a slot and keep the limits; what is nearer to an answer goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPrompt:
    """Token ids that go to the model as they are, chat template included."""

    token_ids: array[int]
    """Type code "I"; never re-encoded on the way, so hostile text cannot become a control token."""
    shared_prefix_tokens: int
    """Leading tokens that other questions on the same chunk share; what a prefix cache can reuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the output is drawn and what shape it must have. Greedy with a recorded seed by default."""

    max_output_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    """Draw from the likeliest tokens that together have this probability."""
    top_k: int = 0
    """Draw from so many of the likeliest tokens; 0: from all."""
    min_p: float = 0.0
    """Draw from tokens at least this share as likely as the likeliest."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Counts the prompt's tokens too, so that a document can no longer be quoted: for conversations only."""
    seed: int = 0
    choices: tuple[str, ...] = ()
    """If set, the output is one token, one of these; `Completion.choice_logprobs` has the log-probability of each.
    Each must be a single token of the model's vocabulary."""
    json_schema: str | None = None
    """If set, the output is JSON that follows this schema, or a truncated beginning of it."""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to the model, with what dispatch needs to place it."""

    prompt: EncodedPrompt
    sampling: Sampling
    stage: Stage
    chunk_index: int | None = None
    affinity: int | None = None
    """Calls of one number go to one replica, whose cache holds what they share. The chunks of a document have numbers
    that follow one another, and replicas take them in turn: each gets its share of the document."""
    on_text: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    """Called with the whole text so far, now and then while it is written; begun anew if the call is sent again."""

    @property
    def priority(self) -> int:
        return PRIORITY[self.stage]

    def cost_tokens(self) -> int:
        """Prompt and output tokens at most; what admission counts."""
        return len(self.prompt.token_ids) + self.sampling.max_output_tokens

    def key(self, model_fingerprint: str) -> str:
        """Content key: equal for calls that must give the same completion, on any machine, in any run."""
        digest = hashlib.sha256()
        digest.update(f"call-1\0{model_fingerprint}\0{self.sampling!r}\0".encode())
        digest.update(self.prompt.token_ids.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or several calls. `cached_tokens` is the part of `prompt_tokens` found in a prefix cache."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    journal_calls: int = 0
    """Calls that an earlier run paid for; their tokens are not counted again."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            journal_calls=self.journal_calls + other.journal_calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model returned."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    choice_logprobs: tuple[float, ...] = ()
    """Natural logarithms, one per `Sampling.choices`, before the restriction to the choices; empty without choices."""
    seconds: float = 0.0
    """From the call's arrival at the engine to its last token, waiting in the engine's queue included."""
    from_journal: bool = False
    """True if this completion was paid for before: by an earlier run, or by this one before it was resumed."""
    own: bool = False
    """True if it was this run that paid, before it was resumed: its usage counts, as if nothing had happened."""


LIMIT_REACHED = "LimitReached"
"""The error of a call that was not sent, because the run has reached one of its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A call that did not return. A value, never an exception, so that it reaches the answer's failed chunks."""

    error: str
    """Name of the error class (`errors.py`), or LIMIT_REACHED, or "Cancelled"."""
    message: str
    attempts: int = 1


Outcome = Completion | CallFailed
News = tuple[int, str | Outcome]
"""Of the call at a place in its batch: its whole text so far, or its outcome."""


class Model(Protocol):
    """Anything that completes a prompt."""

    async def complete(self, call: Call) -> Completion:
        """Return the completion, or raise a `LongfoldError` whose `retryable` says whether to try again.

        Cancelling the awaiting task aborts the generation.
        """
        ...


class Dispatcher(Protocol):
    """The only way from a strategy to a model. Wrappers (meter, journal) are dispatchers too."""

    @property
    def window(self) -> int:
        """How many calls are worth having under way at once; more of them would only wait."""
        ...

    async def complete(self, call: Call) -> Outcome:
        """One call in, one outcome out. A call that keeps failing is `CallFailed`; nothing is raised for it.

        The most urgent of those that wait goes first. Cancelling the await aborts the call in the engine.
        """
        ...
