"""JSON schemas for the model's output, and the lenient reading of what comes back.

Schemas have no `maxLength`: bounded strings make grammar masks hundreds of times slower (docs/experiments.md). So a
string may run into the token limit, and a truncated object is closed by the parser, which says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from partial_json_parser import loads as load_partial

from pipeline.documents.document import LONE_SURROGATE
from pipeline.errors import MalformedOutput
from pipeline.llm.model import Completion

Schema = dict[str, Any]

WORDS_PER_TOKEN = 0.6
"""What a model is asked to keep to: of English in common vocabularies 0.75, less what the JSON around it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFields:
    """The fields of one output object. A missing or ill-typed field is empty; `truncated` says that the end is lost."""

    fields: dict[str, Any]
    truncated: bool

    def text(self, name: str) -> str:
        value = self.fields.get(name, "")
        return _whole(value).strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""

    def numbers(self, name: str) -> list[int]:
        values = self.fields.get(name)
        return [v for v in values if isinstance(v, int)] if isinstance(values, list) else []

    def texts(self, name: str) -> list[str]:
        values = self.fields.get(name)
        return [_whole(v) for v in values if isinstance(v, str) and v.strip()] if isinstance(values, list) else []

    def number(self, name: str) -> int | None:
        """The nearest whole number; None if the output gives none."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return round(value)

    def flag(self, name: str, *, missing: bool = False) -> bool:
        """`missing` if the output does not say."""
        value = self.fields.get(name)
        return value if isinstance(value, bool) else missing

    def confidence(self, name: str = "confidence") -> int:
        """1 to 5; 3 if the output does not say."""
        value = self.number(name)
        return 3 if value is None else min(5, max(1, value))


def _whole(text: str) -> str:
    """A model may write one half of an escaped pair; it becomes U+FFFD, as in a document."""
    return LONE_SURROGATE.sub("\ufffd", text)


def object_schema(**properties: Schema) -> str:
    """An object with exactly these fields in this order, all required; constrained decoding keeps the order."""
    return json.dumps(
        {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    )


def number_list(largest: int, max_items: int, *, min_items: int = 0) -> Schema:
    """From `min_items` to `max_items` numbers, each from 1 to `largest`, or to 1 if that is 0."""
    number = {"type": "integer", "minimum": 1, "maximum": max(1, largest)}
    return {"type": "array", "items": number, "minItems": min_items, "maxItems": max_items}


def text_list(max_items: int, *, min_items: int = 0) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "minItems": min_items, "maxItems": max_items}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
CONFIDENCE: Schema = {"type": "integer", "minimum": 1, "maximum": 5}


def whole_number(largest: int, *, minimum: int = 0) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": largest}


def one_of(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def answer_schema(letters: Sequence[str], *, may_be_empty: bool = True) -> Schema:
    """Text; where there are options one of their letters, or "" for none of them."""
    return one_of([*letters, ""] if may_be_empty else letters) if letters else TEXT


def parse_fields(completion: Completion) -> ParsedFields:
    """Read the output object, closing it where the model was cut off. Raises MalformedOutput if it is no object."""
    text = completion.text.strip()
    try:
        fields = json.loads(text, strict=False)
        truncated = False
    except ValueError:
        try:
            fields = load_partial(text)
        except ValueError as error:
            raise MalformedOutput("The model's output is not JSON.") from error
        truncated = True
    if not isinstance(fields, dict):
        raise MalformedOutput("The model's output is JSON but not an object.")
    return ParsedFields(fields=fields, truncated=truncated or completion.finish_reason != "stop")
