"""A real document that every machine has: Python's own language reference, about 107K tokens."""

from __future__ import annotations

from itertools import accumulate, takewhile

from pipeline.document import Document

NAME = "python-reference"


def bundled_document(at_most_chars: int | None = None) -> Document:
    """The topics of `pydoc_data` in alphabetical order, each a source of its own ("python-reference/numbers").

    With `at_most_chars` only the first topics that fit are taken, at least one. The text differs a little between
    Python versions.
    """
    from pydoc_data.topics import topics

    parts = [(topic, f"{topic}\n{'=' * len(topic)}\n\n{topics[topic].strip()}\n") for topic in sorted(topics)]
    if at_most_chars is not None:
        ends = accumulate(len(text) + 2 for _, text in parts)
        count = sum(1 for _ in takewhile(lambda end: end <= at_most_chars, ends))
        parts = parts[: max(1, count)]
    return Document.join([Document.from_text(text, f"{NAME}/{topic}") for topic, text in parts])
