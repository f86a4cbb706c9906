# ruff: noqa: SIM905 (a word list)
"""Text to hide facts in: what every Python installation has, and generated Chinese where it has none."""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pydoc_data.topics import topics
from types import ModuleType

import pydantic.dataclasses

from benchmarks.data.facts import STRICT, Texts, read_toml

_MODULES = (
    "argparse ast asyncio.tasks calendar codecs collections configparser contextlib csv dataclasses difflib doctest "
    "email.message enum fractions ftplib functools http.client http.cookiejar http.server imaplib inspect json "
    "logging mailbox optparse pathlib pickletools random shutil smtplib socketserver statistics subprocess tarfile "
    "tempfile textwrap threading unittest.mock urllib.request uuid zipfile"
).split()
_PIECE_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive paragraphs of one source."""

    source: str
    paragraphs: tuple[str, ...]

    def text(self) -> str:
        return "\n\n".join(self.paragraphs)

    def chars(self) -> int:
        return sum(len(paragraph) + 2 for paragraph in self.paragraphs)


@pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _Filler:
    """Sentences to generate, for a language in which no Python installation has prose."""

    sentences: Texts
    """A slot takes any of its `words`."""
    words: Mapping[str, Texts]


@functools.cache
def _chinese_filler() -> _Filler:
    return read_toml("chinese_filler.toml", _Filler)


@functools.cache
def language_reference() -> tuple[Piece, ...]:
    """Python's language reference, as `help()` shows it: about 107K tokens."""
    return tuple(piece for name in sorted(topics) for piece in _cut(f"topic {name}", topics[name]))


@functools.cache
def library_reference() -> tuple[Piece, ...]:
    """Docstrings of pure-Python modules of the standard library: about 150K tokens."""
    return tuple(
        piece for name in _MODULES for piece in _cut(f"module {name}", _docstrings(importlib.import_module(name)))
    )


def draw_english(source: random.Random, chars: int, first: list[Piece]) -> list[Piece]:
    """Real text of about `chars` in random order, half reference and half library; `first` are among it."""
    rest = [piece for piece in language_reference() if piece not in first]
    library = list(library_reference())
    source.shuffle(rest)
    source.shuffle(library)
    drawn = list(first)
    left = chars - sum(piece.chars() for piece in drawn)
    supply = [piece for pair in zip(library, rest + library, strict=False) for piece in pair] + rest
    position = 0
    while left > 0:
        piece = _shorten(supply[position % len(supply)], left)
        drawn.append(piece)
        left -= piece.chars()
        position += 1
    source.shuffle(drawn)
    return drawn


def draw_chinese(source: random.Random, chars: int) -> list[str]:
    """Paragraphs of generated sentences about nothing in particular, together about `chars` long."""
    filler = _chinese_filler()

    def sentence() -> str:
        pattern = source.choice(filler.sentences)
        return re.sub(r"{(\w+)}", lambda slot: source.choice(filler.words[slot[1]]), pattern)

    paragraphs: list[str] = []
    total = 0
    while total < chars:
        paragraph = "".join(sentence() for _ in range(source.randrange(3, 8)))
        paragraphs.append(paragraph)
        total += len(paragraph) + 2
    return paragraphs


def _shorten(piece: Piece, chars: int) -> Piece:
    kept: list[str] = []
    for paragraph in piece.paragraphs:
        if kept and sum(map(len, kept)) + len(paragraph) > chars:
            break
        kept.append(paragraph)
    return Piece(piece.source, tuple(kept))


def _cut(name: str, text: str) -> list[Piece]:
    pieces: list[Piece] = []
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.expandtabs()):
        if not paragraph.strip():
            continue
        if sum(map(len, paragraphs)) > _PIECE_CHARS:
            pieces.append(Piece(name, tuple(paragraphs)))
            paragraphs = []
        paragraphs.append(paragraph.rstrip())
    return [*pieces, Piece(name, tuple(paragraphs))] if paragraphs else pieces


def _docstrings(module: ModuleType) -> str:
    """Docstrings of the module, its functions, its classes and their methods, under their names."""
    parts = [f"Module {module.__name__}", inspect.getdoc(module) or ""]
    for name, member in sorted(vars(module).items()):
        if getattr(member, "__module__", None) != module.__name__ or not callable(member):
            continue
        parts += [f"{module.__name__}.{name}", member.__doc__ or ""]
        if inspect.isclass(member):
            for method_name, method in sorted(vars(member).items()):
                if inspect.isfunction(method) and method.__doc__:
                    parts += [f"{module.__name__}.{name}.{method_name}", method.__doc__]
    return "\n\n".join(inspect.cleandoc(part) for part in parts if isinstance(part, str) and part.strip())
