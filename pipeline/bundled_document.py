"""A real document that every machine has: Python's own language reference, about 107K tokens."""

from __future__ import annotations

from pipeline.document import Document

NAME = "python-reference"


def bundled_document(at_least_chars: int | None = None) -> Document:
    """The topics of `pydoc_data` in alphabetical order, each a source of its own ("python-reference/numbers").

    With `at_least_chars` only as many topics as hold that much, if all of them do. The text differs a little
    between Python versions.
    """
    from pydoc_data.topics import topics

    parts: list[Document] = []
    chars = 0
    for topic in sorted(topics):
        if at_least_chars is not None and chars >= at_least_chars:
            break
        text = f"{topic}\n{'=' * len(topic)}\n\n{topics[topic].strip()}\n"
        parts.append(Document.from_text(text, f"{NAME}/{topic}"))
        chars += len(text)
    return Document.join(parts)
