"""A stored document as jobs and files name it: by its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving.storage.json_columns import known_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRef:
    """A document by content. The bytes behind it never change."""

    text_sha256: str
    """Of the text as UTF-8; names the blob that holds it."""
    name: str
    file_id: str = ""
    """The upload it came from; empty for text given in the request."""
    characters: int = 0
    tokens: int = 0
    """Of the model that was served when it was stored, of a long text estimated; 0 if it was not counted."""
    sources: tuple[tuple[str, int, int, str], ...] = ()
    """Name, start, end, encoding of each source in it (pages of a PDF, for example)."""


def document_from(raw: Mapping[str, Any]) -> DocumentRef:
    fields = known_fields(DocumentRef, raw)
    fields["sources"] = tuple((str(n), int(s), int(e), str(c)) for n, s, e, c in fields.get("sources", ()))
    return DocumentRef(**fields)
