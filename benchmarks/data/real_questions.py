"""Questions about Python's language reference, each checked by hand against the sentence that states its answer.

A sentence that the running Python's own reference does not have (the wording changes between versions) drops out with
its question. Where the same sentence is under several topics, every place counts as stating the answer.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Self

import pydantic.dataclasses
from pydantic import model_validator

from benchmarks.data.facts import STRICT, Texts, read_toml
from benchmarks.data.haystack import Piece, language_reference
from benchmarks.data.patterns import REGEX


@dataclass(frozen=True, slots=True)
class RealQuestion:
    question: str
    sentences: tuple[str, ...]
    """Any of them states the answer; white space and line ends may differ in the text."""
    accepted: tuple[str, ...]
    rejected: tuple[str, ...] = ()

    def patterns(self) -> list[str]:
        """Regular expressions for the sentences as they are broken into lines."""
        return [r"\s+".join(map(re.escape, sentence.split())) for sentence in self.sentences]

    def finds(self, text: str) -> bool:
        return any(re.search(pattern, text) for pattern in self.patterns())


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _Entry:
    """Of the file: `accepted`, or a Python version or PEP, of which an answer must name no other."""

    question: str
    sentences: Texts
    accepted: Texts = ()
    rejected: Texts = ()
    python: str = ""
    pep: int | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if [bool(self.accepted), bool(self.python), bool(self.pep)].count(True) != 1 or not self.sentences:
            raise ValueError(f"{self.question!r} needs sentences and one of accepted, python and pep")
        return self

    def read(self) -> RealQuestion:
        accepted, rejected = self.accepted, self.rejected
        if self.python:
            minor = self.python.removeprefix("3.")
            accepted, rejected = (self.python,), (rf"{REGEX}(?<![0-9.])[23]\.(?!{minor}(?![0-9]))[0-9]+",)
        elif self.pep:
            accepted, rejected = (str(self.pep),), (rf"{REGEX}pep *(?!{self.pep}(?![0-9]))[0-9]+",)
        return RealQuestion(self.question, self.sentences, accepted, rejected)


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _File:
    questions: tuple[_Entry, ...]


@functools.cache
def real_questions() -> tuple[RealQuestion, ...]:
    return tuple(entry.read() for entry in read_toml("real_questions.toml", _File).questions)


@functools.cache
def answerable() -> dict[RealQuestion, Piece]:
    """The questions that this Python's reference answers, each with a piece of it that does."""
    found: dict[RealQuestion, Piece] = {}
    for question in real_questions():
        for piece in language_reference():
            if question.finds(piece.text()):
                found[question] = piece
                break
    return found
