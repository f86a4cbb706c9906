"""A tokenizer that needs no model: one token per byte, and the turns of a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers

from pipeline.llm.tokenizer import Tokenizer

CONTROL = ("<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(byte_tokenizer_json(), None, {})


def byte_tokenizer_json(control: Sequence[str] = ()) -> str:
    """As it stands in a model's directory, with a token for each of `control`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE(vocab={character: n for n, character in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([*control])
    return str(raw.to_str())
