"""Names and figures that no model has read, each used at most once in a document."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

from pydantic.dataclasses import dataclass

from benchmarks.data.facts import STRICT, Texts, read_toml


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _English:
    first_names: Texts
    surname_starts: Texts
    surname_ends: Texts
    place_starts: Texts
    place_ends: Texts
    ship_words: Texts
    ship_nouns: Texts
    software_starts: Texts
    software_ends: Texts
    firm_ends: Texts
    months: Texts


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _Chinese:
    """Of single characters."""

    surnames: str
    given: str
    place_starts: str
    place_middles: str
    place_ends: str
    ship_words: str
    ship_nouns: str
    software_words: str
    software_nouns: str


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class _Names:
    """The file `names.toml`."""

    english: _English
    chinese: _Chinese


@cache
def _names() -> _Names:
    return read_toml("names.toml", _Names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a statement: how the text says it, and every way an answer may say it."""

    text: str
    accepted: tuple[str, ...]
    """After `patterns.normalise` each is looked for in the answer; the shortest must be unique in the document."""


class Inventor:
    """Draws names and figures whose distinctive part is not in the document already and was not drawn before."""

    def __init__(self, random_source: random.Random, is_known: Callable[[str], bool]) -> None:
        self._random = random_source
        self._is_known = is_known
        self._used: set[str] = set()

    def choice(self, options: tuple[str, ...]) -> str:
        return self._random.choice(options)

    def _fresh(self, draw: Callable[[], str]) -> str:
        for _ in range(1000):
            drawn = draw()
            if drawn.casefold() not in self._used and not self._is_known(drawn):
                self._used.add(drawn.casefold())
                return drawn
        raise ValueError("too many facts for one document: the names have run out")

    def _join(self, *parts: Sequence[str], between: str = "") -> str:
        return self._fresh(lambda: between.join(self._random.choice(part) for part in parts))

    def surname(self) -> str:
        return self._join(_names().english.surname_starts, _names().english.surname_ends)

    def place_name(self) -> str:
        return self._join(_names().english.place_starts, _names().english.place_ends)

    def ship_name(self) -> str:
        return self._join(_names().english.ship_words, _names().english.ship_nouns, between=" ")

    def software_name(self) -> str:
        return self._join(_names().english.software_starts, _names().english.software_ends)

    def number(self, low: int, high: int) -> int:
        """A number that no other number of the document equals; years of `date` lie between the ranges in use."""
        return int(self._fresh(lambda: str(self._random.randrange(low, high))))

    def value(self, kind: str) -> Value:
        """A value of a kind: person, place, firm, date, version, port, "count UNIT", "money UNIT" or "decimal UNIT"."""
        name, _, unit = kind.partition(" ")
        named: dict[str, Callable[[], Value]] = {
            "person": self.person,
            "place": self.place,
            "firm": self.firm,
            "date": self.date,
            "version": self.version,
        }
        return named[name]() if name in named else self.quantity(name, unit)

    def quantity(self, size: str, unit: str) -> Value:
        if size == "decimal":
            drawn = f"{self.number(103, 997)}.{self._random.randrange(1, 10)}"
            return Value(text=f"{drawn} {unit}", accepted=(drawn,))
        if size == "port":
            number = self.number(10_000, 60_000)
            return Value(text=str(number), accepted=(str(number),))
        number = self.number(103, 997) if size == "count" else self.number(3_017, 98_990)
        return Value(text=f"{number:,} {unit}", accepted=(str(number),))

    def entity(self, pattern: str) -> str:
        """Fill the one slot of a domain's `entity`."""
        drawers = {
            "{surname}": self.surname,
            "{place}": self.place_name,
            "{ship}": self.ship_name,
            "{software}": self.software_name,
        }
        slot, draw = next((slot, draw) for slot, draw in drawers.items() if slot in pattern)
        return pattern.replace(slot, draw())

    def person(self) -> Value:
        surname = self.surname()
        return Value(text=f"{self._random.choice(_names().english.first_names)} {surname}", accepted=(surname,))

    def place(self) -> Value:
        name = self.place_name()
        return Value(text=name, accepted=(name,))

    def firm(self) -> Value:
        name = self.surname()
        return Value(text=f"{name} {self._random.choice(_names().english.firm_ends)}", accepted=(name,))

    def date(self) -> Value:
        """Days after the 12th: 13/5 and 5/13 then mean the same. The year alone would repeat."""
        months, source = _names().english.months, self._random
        written = self._fresh(
            lambda: f"{source.randrange(13, 29)} {source.choice(months)} {source.randrange(2031, 2079)}"
        )
        day, month, year = written.split()
        number = months.index(month) + 1
        return Value(
            text=written,
            accepted=(
                written,
                f"{month} {day} {year}",
                f"{day} of {month} {year}",
                f"{year} {number:02} {day}",
                f"{day} {number:02} {year}",
                f"{number:02} {day} {year}",
                f"{day} {month[:3]} {year}",
            ),
        )

    def version(self) -> Value:
        written = self._fresh(
            lambda: f"{self._random.randrange(5, 40)}.{self._random.randrange(11, 60)}.{self._random.randrange(11, 60)}"
        )
        return Value(text=f"version {written}", accepted=(written,))


class ChineseInventor(Inventor):
    """Draws Chinese names and figures."""

    def surname(self) -> str:
        names = _names().chinese
        return self._fresh(lambda: self._random.choice(names.surnames) + "".join(self._random.sample(names.given, 2)))

    def place_name(self) -> str:
        names = _names().chinese
        return self._join(names.place_starts, names.place_middles, names.place_ends)

    def ship_name(self) -> str:
        return self._join(_names().chinese.ship_words, _names().chinese.ship_nouns)

    def software_name(self) -> str:
        return self._join(_names().chinese.software_words, _names().chinese.software_nouns)

    def quantity(self, size: str, unit: str) -> Value:
        value = super().quantity(size, unit)
        return Value(text=value.accepted[0] + unit, accepted=value.accepted)

    def person(self) -> Value:
        name = self.surname()
        return Value(text=name, accepted=(name,))

    def firm(self) -> Value:
        given = _names().chinese.given
        name = self.place_name()[:2] + self._fresh(lambda: "".join(self._random.sample(given, 2)))
        return Value(text=f"{name}公司", accepted=(name,))

    def date(self) -> Value:
        ranges = ((2031, 2079), (1, 13), (13, 29))
        written = self._fresh(lambda: "{}年{}月{}日".format(*(self._random.randrange(*limits) for limits in ranges)))
        year, month, day = (int(part) for part in written.replace("年", " ").replace("月", " ").rstrip("日").split())
        return Value(text=written, accepted=(written, f"{year} {month:02} {day}", f"{year}年{month:02}月{day}日"))

    def version(self) -> Value:
        written = super().version().accepted[0]
        return Value(text=f"{written}版", accepted=(written,))
