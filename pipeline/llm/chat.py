"""A conversation put to the model as it is: no strategy, one call, the model's own chat template.

What the template writes is trusted; every message's text is encoded apart, as untrusted text, so nothing that anyone
wrote in a message can end a turn or begin one.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import CallerError, PromptTooLong
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Call, EncodedPrompt, Sampling, Stage
from pipeline.llm.tokenizer import Tokenizer

Message = Mapping[str, str]
"""`role` and `content`, as OpenAI's clients send them."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""What clients say, and what chat templates know."""


def chat_call(
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    budget: TokenBudget,
    *,
    max_output_tokens: int | None = None,
    stop: Sequence[str] = (),
    **sampling: Any,
) -> Call:
    """One call that continues the conversation; without `max_output_tokens` it may fill the context.

    `sampling` are further fields of `Sampling`.

    Raises PromptTooLong, which knows how many tokens too many there are, and what `encode_chat` raises.
    """
    prompt = encode_chat(messages, tokenizer)
    room = budget.context_tokens - len(prompt.token_ids)
    wanted = max_output_tokens if max_output_tokens is not None else max(1, room)
    if (over_tokens := wanted - room) > 0:
        raise PromptTooLong(
            f"The messages have {len(prompt.token_ids)} tokens and their answer {wanted}: {over_tokens} more than the "
            f"model's context of {budget.context_tokens} holds.",
            over_tokens=over_tokens,
        )
    return budget.check_fits(
        Call(
            prompt=prompt,
            sampling=Sampling(max_output_tokens=wanted, stop=tuple(stop), **sampling),
            stage=Stage.DIRECT,
            affinity=_affinity(messages, prompt.token_ids),
        )
    )


def encode_chat(messages: Sequence[Message], tokenizer: Tokenizer) -> EncodedPrompt:
    """Token ids up to where the model's turn begins.

    Raises CallerError for no message or an unknown role, TemplateRefused for an order that the model was not made for.
    """
    rendered = tokenizer.chat_template.render(_roles(messages))
    texts = tokenizer.encode_contents([message["content"] for message in messages])
    ids = array("I", tokenizer.encode_template(rendered.pieces[0]))
    for index, piece in zip(rendered.order, rendered.pieces[1:], strict=True):
        ids.extend(texts[index])
        ids.extend(tokenizer.encode_template(piece))
    return EncodedPrompt(token_ids=ids, shared_prefix_tokens=0)


def _roles(messages: Sequence[Message]) -> tuple[str, ...]:
    if not messages:
        raise CallerError("There is no message; send at least one.")
    unknown = sorted({message["role"] for message in messages} - ROLES.keys())
    if unknown:
        raise CallerError(f"No message may have the role {unknown[0]!r}; the roles are {', '.join(ROLES)}.")
    return tuple(ROLES[message["role"]] for message in messages)


def _affinity(messages: Sequence[Message], token_ids: array[Any]) -> int:
    """The same for every turn of a conversation: its replica then has the turns before in its cache."""
    opening = next((message["content"] for message in messages if message["role"] == "user"), None)
    content = opening.encode() if opening is not None else token_ids.tobytes()
    return int.from_bytes(hashlib.sha256(content).digest()[:4])
