"""The shape of what can be hidden in a document, in any language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that can be known of an entity. `{e}` stands for the entity, `{v}` for the value."""

    value_kind: str
    statements: tuple[str, ...]
    """Clauses that begin in lower case and have no full stop, so that they fit into other sentences."""
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Entities of one sort and what can be known of them."""

    name: str
    entity: str
    """With one of `{surname}`, `{place}`, `{ship}`, `{software}`."""
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A fact that leads from one entity to another; a question can go through it."""

    source: str
    target: str
    """Names of domains."""
    statements: tuple[str, ...]
    """With `{a}` and `{b}`."""
    phrase: str
    """Names b by its relation to `{a}`, in place of an entity."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Something that holds of an entity several times; `{e}` and `{v}` as in `Attribute`."""

    domain: str
    value_kind: str
    statements: tuple[str, ...]
    which: str = ""
    """Asks for all values; empty where values are amounts."""
    how_many: str = ""
    total: str = ""
    largest: str = ""


@dataclass(frozen=True, slots=True)
class Language:
    """Everything that depends on the language of a document."""

    code: str
    chars_per_token: float
    """Measured with the vocabulary of Qwen2.5: enough to size a document, never to fit a prompt."""
    domains: tuple[Domain, ...]
    links: tuple[Link, ...]
    collections: tuple[Collection, ...]
    lead_ins: tuple[str, ...]
    """Whole sentences about `{e}` that say nothing."""
    hearsay: tuple[str, ...]
    """Sentences around a clause `{c}` that nobody vouches for."""
    supported: tuple[str, ...]
    superseded: tuple[str, ...]
    """Sentences around a clause `{c}` that held once."""
    updated: tuple[str, ...]
    full_stop: str = "."
    space: str = " "
