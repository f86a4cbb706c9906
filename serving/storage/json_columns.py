"""Records to JSON columns and back; fields that are not known here are left out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> str:
    """In ASCII: any character of a document, NUL and lone surrogates too, passes through every database."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def to_json_or_null(value: Any) -> str | None:
    return None if value is None else to_json(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no place in a stored record")


def known_fields(record: type, raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(record)}
    return {name: value for name, value in raw.items() if name in names}
