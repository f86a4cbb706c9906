"""A real document that every machine has: Python's own language reference, about 107K tokens."""

from __future__ import annotations

from pipeline.documents.document import Document

NAME = "python-reference"


def bundled_document(max_chars: int | None = None) -> Document:
    """The topics of `pydoc_data` in alphabetical order, each a source of its own ("python-reference/numbers").

    With `max_chars` only as many topics, from the first on, as hold no more than that. The text differs a little
    between Python versions.
    """
    from pydoc_data.topics import topics

    parts: list[Document] = []
    chars = 0
    for topic in sorted(topics):
        text = f"{topic}\n{'=' * len(topic)}\n\n{topics[topic].strip()}\n"
        if max_chars is not None and chars + len(text) > max_chars:
            break
        parts.append(Document.from_text(text, f"{NAME}/{topic}"))
        chars += len(text)
    return Document.join(parts)
