"""Documents and the places in them. All offsets are code points, all intervals half-open."""

from __future__ import annotations

import bisect
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no encoding can carry."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The interval [start, end) of a document's text, in code points."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a span: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file (or stream) that a document was made from, and where its text stands in the document."""

    name: str
    span: Span
    encoding: str = "utf-8"
    """How its bytes became text, with what was replaced, for example "utf-8 (3 invalid bytes replaced)"."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """Immutable text made from one or more sources, which follow one another without overlap."""

    text: str
    sources: tuple[Source, ...] = field(default=())

    @classmethod
    def from_text(cls, text: str, name: str = "text", encoding: str = "utf-8") -> Document:
        """Make a document of one source. Lone surrogates, which no encoding can carry, become U+FFFD one for one."""
        clean, replaced = LONE_SURROGATE.subn("\ufffd", text)
        note = f" ({replaced} lone surrogates replaced)" if replaced else ""
        return cls(text=clean, sources=(Source(name=name, span=Span(0, len(clean)), encoding=encoding + note),))

    @classmethod
    def join(cls, documents: list[Document]) -> Document:
        """One document of many, each beginning on a new line; what separates them belongs to no source."""
        parts: list[str] = []
        sources: list[Source] = []
        position = 0
        for document in documents:
            if position:
                parts.append("\n\n")
                position += 2
            for source in document.sources:
                span = Span(source.span.start + position, source.span.end + position)
                sources.append(Source(name=source.name, span=span, encoding=source.encoding))
            parts.append(document.text)
            position += len(document.text)
        return cls(text="".join(parts), sources=tuple(sources))

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def slice(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def place(self, position: int) -> tuple[str, int]:
        """Name of the source that holds `position`, and the 1-based line within that source."""
        starts = [source.span.start for source in self.sources]
        source = self.sources[max(0, bisect.bisect_right(starts, position) - 1)]
        line = bisect.bisect_right(self._line_starts, position)
        first_line = bisect.bisect_right(self._line_starts, source.span.start)
        return source.name, line - first_line + 1
