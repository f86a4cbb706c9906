"""Facts to hide in a document, in any language: the records of `english.toml` and `chinese.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Self, TypeVar

from pydantic import ConfigDict, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid")
Texts = tuple[str, ...]
Record = TypeVar("Record")


def read_toml(name: str, record: type[Record]) -> Record:
    """A file beside this one as a record. Raises ValidationError that names the field where it is no such record."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return TypeAdapter(record).validate_python(tomllib.loads(text))


@cache
def load_language(code: str) -> Language:
    """Raises KeyError for a language without facts."""
    return read_toml({"en": "english.toml", "zh": "chinese.toml"}[code], Language)


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Attribute:
    """One thing that can be known of an entity. `{e}` is the entity, `{v}` the value."""

    value_kind: str
    statements: Texts
    """Clauses that begin in lower case and have no full stop, so that they fit into other sentences."""
    questions: Texts

    @model_validator(mode="after")
    def _slots(self) -> Self:
        require_slots(self.statements, "e", "v")
        require_slots(self.questions, "e")
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Domain:
    """Entities of one sort and what can be known of them."""

    name: str
    entity: str
    """With one of `{surname}`, `{place}`, `{ship}`, `{software}`."""
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Link:
    """A fact that leads from one entity to another; a question can go through it."""

    source: str
    target: str
    """Names of domains."""
    statements: Texts
    """With `{a}` and `{b}`."""
    phrase: str
    """Names b by its relation to `{a}`, in place of an entity."""

    @model_validator(mode="after")
    def _slots(self) -> Self:
        require_slots(self.statements, "a", "b")
        require_slots([self.phrase], "a")
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Collection:
    """Something that holds of an entity several times; `{e}` and `{v}` as in `Attribute`."""

    domain: str
    value_kind: str
    statements: Texts
    which: str = ""
    """Asks for all values; empty where values are amounts."""
    how_many: str = ""
    total: str = ""
    largest: str = ""

    @model_validator(mode="after")
    def _slots(self) -> Self:
        require_slots(self.statements, "e", "v")
        require_slots(filter(None, (self.which, self.how_many, self.total, self.largest)), "e")
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class Language:
    """Everything that depends on the language of a document."""

    code: str
    chars_per_token: float
    """Measured with the vocabulary of Qwen2.5: enough to size a document, never to fit a prompt."""
    domains: tuple[Domain, ...]
    links: tuple[Link, ...]
    collections: tuple[Collection, ...]
    lead_ins: Texts
    """Whole sentences about `{e}` that say nothing."""
    hearsay: Texts
    """Sentences around a clause `{c}` that nobody vouches for."""
    supported: Texts
    superseded: Texts
    """Sentences around a clause `{c}` that held once."""
    updated: Texts
    full_stop: str = "."
    space: str = " "

    @model_validator(mode="after")
    def _slots_and_names(self) -> Self:
        require_slots(self.lead_ins, "e")
        require_slots((*self.hearsay, *self.supported, *self.superseded, *self.updated), "c")
        named = {name for link in self.links for name in (link.source, link.target)}
        named |= {collection.domain for collection in self.collections}
        if unknown := named - {domain.name for domain in self.domains}:
            raise ValueError(f"no domain has the name {unknown}")
        return self


def require_slots(texts: Iterable[str], *slots: str) -> None:
    """Raise ValueError for a text without just these slots: a fact that lost its value would be no fact."""
    for text in texts:
        found = sorted(name for _, name, _, _ in Formatter().parse(text) if name is not None)
        if found != sorted(slots):
            raise ValueError(f"{text!r} has the slots {found}, not {sorted(slots)}")
