"""Make one question, the sentences that answer it and the sentences that nearly do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.data.facts import Attribute, Domain, Language
from benchmarks.data.items import Kind
from benchmarks.data.names import Inventor, Value
from benchmarks.data.patterns import all_of

Role = Literal["states", "links", "conflicts"]


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """A sentence whose place must be known; `start` counts from its plant's beginning."""

    start: int
    text: str
    role: Role


@dataclass(slots=True)
class Plant:
    """One paragraph to hide."""

    space: str
    text: str = ""
    marked: list[MarkedSentence] = field(default_factory=list)
    keep_apart: bool = False
    """The two plants of a question that say so lie far from each other."""

    def add(self, sentence: str, role: Role | None = None) -> None:
        """Append a sentence, and remember its place if it has a role."""
        start = len(self.text) + (len(self.space) if self.text else 0)
        self.text = self.text + self.space + sentence if self.text else sentence
        if role:
            self.marked.append(MarkedSentence(start, sentence, role))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedQuestion:
    question: str
    kind: Kind
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    plants: tuple[Plant, ...]


def plant(kind: Kind, source: random.Random, language: Language, inventor: Inventor) -> PlantedQuestion:
    """With distractors: the same entity's other attributes, and another entity's same attribute."""
    planter = _Planter(source, language, inventor)
    if kind == "two_hop":
        return planter.two_hop()
    if kind == "conflict":
        return planter.conflict()
    if kind == "aggregation":
        return planter.aggregation()
    return planter.lookup(absent=kind == "absent")


class _Planter:
    def __init__(self, source: random.Random, language: Language, inventor: Inventor) -> None:
        self._random = source
        self._language = language
        self._inventor = inventor

    def lookup(self, *, absent: bool) -> PlantedQuestion:
        """For an absent fact everything is planted but the sentence that states it."""
        domain = self._random.choice(self._language.domains)
        asked, *others = self._random.sample(domain.attributes, 3)
        entity = self._entity(domain)
        main, value = self._plant(entity, asked, others[0], absent=absent)
        plants = [main]
        sibling, sibling_value = self._sibling(domain, asked)
        plants += [sibling, self._distractor(entity, others[1])]
        return PlantedQuestion(
            question=self._ask(asked, entity),
            kind="absent" if absent else "lookup",
            accepted=() if absent else value.accepted,
            rejected=() if absent else sibling_value.accepted,
            plants=tuple(plants),
        )

    def two_hop(self) -> PlantedQuestion:
        link = self._random.choice(self._language.links)
        domains = {domain.name: domain for domain in self._language.domains}
        first, second = self._entity(domains[link.source]), self._entity(domains[link.target])
        asked, other = self._random.sample(domains[link.target].attributes, 2)
        leads = Plant(self._language.space, keep_apart=True)
        if self._random.random() < 0.5:
            leads.add(self._lead_in(first))
        leads.add(self._sentence(self._random.choice(link.statements).format(a=first, b=second)), "links")
        states, value = self._plant(second, asked, other)
        states.keep_apart = True
        sibling, sibling_value = self._sibling(domains[link.target], asked)
        return PlantedQuestion(
            question=self._ask(asked, link.phrase.format(a=first)),
            kind="two_hop",
            accepted=value.accepted,
            rejected=sibling_value.accepted,
            plants=(leads, states, sibling),
        )

    def conflict(self) -> PlantedQuestion:
        """Hearsay against a record, or an old figure and, later in the document, its correction."""
        language = self._language
        domain = self._random.choice(language.domains)
        asked, other = self._random.sample(domain.attributes, 2)
        entity = self._entity(domain)
        weak, strong = self._random.choice(
            ((language.hearsay, language.supported), (language.superseded, language.updated))
        )
        false, true = self._value(asked), self._value(asked)
        plants = []
        for frames, value, role in ((weak, false, "conflicts"), (strong, true, "states")):
            one = Plant(language.space, keep_apart=True)
            one.add(self._random.choice(frames).format(c=self._clause(asked, entity, value)), role)  # type: ignore[arg-type]
            plants.append(one)
        plants[self._random.randrange(2)].add(self._statement(other, entity, self._value(other)))
        return PlantedQuestion(
            question=self._ask(asked, entity),
            kind="conflict",
            accepted=true.accepted,
            rejected=false.accepted,
            plants=tuple(plants),
        )

    def aggregation(self) -> PlantedQuestion:
        """Something that holds three to six times, far and wide; which, how many, how much in all, or the largest."""
        asked = self._random.choice(_ASKED)
        collection = self._random.choice([one for one in self._language.collections if getattr(one, asked)])
        [domain] = [domain for domain in self._language.domains if domain.name == collection.domain]
        entity, sibling = self._entity(domain), self._entity(domain)
        own = [self._inventor.value(collection.value_kind) for _ in range(self._random.randrange(3, 7))]
        others = [self._inventor.value(collection.value_kind) for _ in range(2)]
        plants = []
        for whose, value in [*((entity, value) for value in own), *((sibling, value) for value in others)]:
            one = Plant(self._language.space)
            clause = self._random.choice(collection.statements).format(e=whose, v=value.text)
            one.add(self._sentence(clause), "states" if whose is entity else None)
            plants.append(one)
        accepted, rejected = _whole(asked, [v.accepted[0] for v in own], [v.accepted[0] for v in others])
        return PlantedQuestion(
            question=getattr(collection, asked).format(e=entity),
            kind="aggregation",
            accepted=accepted,
            rejected=rejected,
            plants=tuple(plants),
        )

    def _plant(self, entity: str, asked: Attribute, other: Attribute, *, absent: bool = False) -> tuple[Plant, Value]:
        """One to three sentences: the fact, perhaps with one that says nothing or states something else."""
        one = Plant(self._language.space)
        value = self._value(asked)
        if self._random.random() < 0.4:
            one.add(self._lead_in(entity))
        if not absent:
            one.add(self._statement(asked, entity, value), "states")
        if absent or self._random.random() < 0.5:
            one.add(self._statement(other, entity, self._value(other)))
        return one, value

    def _sibling(self, domain: Domain, asked: Attribute) -> tuple[Plant, Value]:
        """Another entity of the domain with a value for what is asked."""
        value = self._value(asked)
        one = Plant(self._language.space)
        one.add(self._statement(asked, self._entity(domain), value))
        return one, value

    def _distractor(self, entity: str, attribute: Attribute) -> Plant:
        one = Plant(self._language.space)
        one.add(self._statement(attribute, entity, self._value(attribute)))
        if self._random.random() < 0.5:
            one.add(self._lead_in(entity))
        return one

    def _entity(self, domain: Domain) -> str:
        return self._inventor.entity(domain.entity)

    def _value(self, attribute: Attribute) -> Value:
        return self._inventor.value(attribute.value_kind)

    def _ask(self, attribute: Attribute, entity: str) -> str:
        return self._random.choice(attribute.questions).format(e=entity)

    def _lead_in(self, entity: str) -> str:
        return self._random.choice(self._language.lead_ins).format(e=entity)

    def _clause(self, attribute: Attribute, entity: str, value: Value) -> str:
        return self._random.choice(attribute.statements).format(e=entity, v=value.text)

    def _statement(self, attribute: Attribute, entity: str, value: Value) -> str:
        return self._sentence(self._clause(attribute, entity, value))

    def _sentence(self, clause: str) -> str:
        return clause[0].upper() + clause[1:] + self._language.full_stop


_ASKED = ("which", "how_many", "total", "largest")
"""Questions of a `Collection`."""
_CHINESE_COUNTS = "零一二三四五六"


def _whole(asked: str, own: list[str], others: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Forms that an answer about all of `own` must hold and must not; `others` belong to another entity."""
    if asked == "which":
        return (all_of(own),), tuple(others)
    if asked == "how_many":
        return (str(len(own)), _CHINESE_COUNTS[len(own)]), ()
    amounts = sorted(map(int, own))
    if asked == "total":
        return (str(sum(amounts)),), ()
    return (str(amounts[-1]),), (*map(str, amounts[:-1]), *others)
