"""From Markdown templates and untrusted text to token ids.

A template is trusted; what fills its slots is not. The two are encoded apart and joined as ids, so nothing in a
document or a question can become a control token, and no token spans the join.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.llm.model import EncodedPrompt
from pipeline.llm.tokenizer import Tokenizer

_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Trusted text with named slots, written `{{name}}`."""

    name: str
    pieces: tuple[str, ...]
    """Text at even places, slot names at odd ones."""

    @classmethod
    def parse(cls, name: str, markdown: str) -> PromptTemplate:
        return cls(name, tuple(_SLOT.split(markdown)))

    @property
    def slots(self) -> frozenset[str]:
        return frozenset(self.pieces[1::2])

    def encode(self, tokenizer: Tokenizer, values: Mapping[str, Sequence[int]]) -> array[int]:
        """Fill each slot with token ids. Every slot needs a value and every value a slot."""
        assert self.slots == values.keys(), f"{self.name}: slots {set(self.slots)}, values {set(values)}"
        ids = array("I")
        for index, piece in enumerate(self.pieces):
            ids.extend(values[piece] if index % 2 else tokenizer.encode_template(piece))
        return ids


def chat_prompt(
    tokenizer: Tokenizer, *, shared: Sequence[Sequence[int]] = (), own: Sequence[Sequence[int]] = ()
) -> EncodedPrompt:
    """One user message in the model's chat template: first what other questions share, then this call's own part."""
    ids = array("I", tokenizer.encode_template(tokenizer.chat_prefix))
    for part in shared:
        ids.extend(part)
    shared_tokens = len(ids)
    for part in own:
        ids.extend(part)
    ids.extend(tokenizer.encode_template(tokenizer.chat_suffix))
    return EncodedPrompt(token_ids=ids, shared_prefix_tokens=shared_tokens)
