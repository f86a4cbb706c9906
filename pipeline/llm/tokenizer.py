"""Text to token ids, with trusted and hostile text kept apart.

Two tokenizers are made from one `tokenizer.json`: one knows the control tokens and encodes only our own templates;
the other has them removed and encodes everything that comes from outside, so `<|im_start|>` in a document becomes
ordinary sub-word ids.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers

from pipeline.errors import ModelIncomplete
from pipeline.llm.chat_template import ChatTemplate

if TYPE_CHECKING:
    TokenIds = array[int]
else:  # Python 3.11 cannot subscript it where annotations are read
    TokenIds = array


class Tokenizer:
    """The served model's own tokenizer; every length in Longfold is counted with it."""

    def __init__(self, tokenizer_json: str, chat_template: str | None, special_tokens: dict[str, str]) -> None:
        """`special_tokens` are the names a chat template may use, such as `bos_token`."""
        description = json.loads(tokenizer_json)
        self._trusted = tokenizers.Tokenizer.from_str(tokenizer_json)
        self._control_ids = frozenset(token["id"] for token in description.get("added_tokens", []))
        without_control = {**description, "added_tokens": [], "post_processor": None}
        self._untrusted = tokenizers.Tokenizer.from_str(json.dumps(without_control))
        for tokenizer in (self._trusted, self._untrusted):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self.fingerprint = hashlib.sha256(f"{tokenizer_json}\0{chat_template}".encode()).hexdigest()[:16]
        self.chat_template = ChatTemplate(chat_template, special_tokens)
        self.chat_prefix, self.chat_suffix = self.chat_template.around_user_text()
        self.encode_template = lru_cache(maxsize=4096)(self._encode_template)

    @classmethod
    def from_directory(cls, directory: Path) -> Tokenizer:
        """Load `tokenizer.json` and the chat template of a model directory; nothing else is read."""
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelIncomplete(f"{directory} has no tokenizer.json; pull the model again.")
        config_path = directory / "tokenizer_config.json"
        config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
        template_path = directory / "chat_template.jinja"
        template = template_path.read_text("utf-8") if template_path.is_file() else config.get("chat_template")
        if isinstance(template, list):  # several named templates: the default one is for conversation
            template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
        special = {name: _token_text(config[name]) for name in ("bos_token", "eos_token") if config.get(name)}
        return cls(path.read_text("utf-8"), template, special)

    def _encode_template(self, text: str) -> tuple[int, ...]:
        """Encode trusted text: control tokens written in it are meant."""
        return tuple(self._trusted.encode(text, add_special_tokens=False).ids)

    def encode_content(self, text: str) -> array[int]:
        """Encode untrusted text: no id of the result is a control token, whatever the text says."""
        return self.encode_contents([text])[0]

    def encode_contents(self, texts: Sequence[str]) -> list[array[int]]:
        """Encode many untrusted texts at once, each apart from its neighbours, on all cores."""
        encodings = self._untrusted.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._without_control(text, encoding.ids) for text, encoding in zip(texts, encodings, strict=True)]

    def _without_control(self, text: str, ids: list[int]) -> array[int]:
        """Spell `text` character by character in the rare vocabulary where a control token is an ordinary word too."""
        if self._control_ids.isdisjoint(ids):
            return array("I", ids)
        spelled = array("I")
        for character in text:
            single = self._untrusted.encode(character, add_special_tokens=False).ids
            spelled.extend(token for token in single if token not in self._control_ids)
        return spelled

    def count(self, text: str) -> int:
        return len(self.encode_content(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._trusted.decode(list(token_ids), skip_special_tokens=False))

    @property
    def control_ids(self) -> frozenset[int]:
        return self._control_ids


def _token_text(entry: str | dict[str, str]) -> str:
    return entry if isinstance(entry, str) else entry["content"]
