# ruff: noqa: E501, SIM905 (word lists)
"""Names and figures that no model has read, each used at most once in a document."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_NAMES = (
    "Adela Anselm Astrid Bastian Beatrix Bruno Cecily Clemens Dagmar Damian Edda Emeric Farida Felix Greta Gustav "
    "Hanne Hector Ida Ignace Jolanta Joris Katrin Konrad Leonie Ludo Mahala Matthias Nadia Nestor Odile Oskar "
    "Petra Quentin Rosalind Ruben Selma Stellan Tamsin Tobias Ulrike Valentin Wanda Xavier Yvette Zeno"
).split()
_SURNAME_STARTS = (
    "Bal Bor Bram Cal Car Corv Dal Dorn Drav Ebb Eld Fal Farn Fenn Gald Garr Grim Hal Harv Helm Ing Jarr Kel Kolv "
    "Lam Lorn Mald Marv Nev Nord Orl Ost Pell Prav Quel Rad Rost Sarn Skel Sorv Tarn Thal Ulv Vald Vorn Wend Wulf Yarr Zell"
).split()
_SURNAME_ENDS = (
    "aker ander atti berg bury dale dott egaard elius enko erby etzky hage holm idge ingsen iros lund mark marsh mire "
    "nagel oviak quist rath rell ridge skold stad steyn stone ström tarn thorpe ulin vary vik wick worth"
).split()
_PLACE_STARTS = (
    "Alder Ash Birk Black Brack Cinder Clay Cop Crane Dun Ember Flint Fox Gorse Gray Hazel Heron Iron Juniper Kestrel "
    "Lark Marl Mistle Moss Nettle Otter Peat Quarry Raven Reed Rook Sable Salt Slate Sorrel Swan Thistle Vetch Willow Yew"
).split()
_PLACE_ENDS = (
    "bourne bridge cliffe combe cross den fell field fleet ford gate ham haven hurst ley mere minster mouth ness pool "
    "reach rigg scar shaw sluice staple stead stoke thwaite toft wade wharf"
).split()
_SHIP_WORDS = "Amber Brazen Copper Distant Early Faithful Gallant Hollow Idle Kindly Lasting Merry Northern Patient Quiet Steady".split()
_SHIP_NOUNS = "Anvil Bittern Compass Curlew Dunlin Fathom Gannet Hourglass Kite Lantern Marten Osprey Plover Sextant Shearwater Tern".split()
_SOFTWARE_STARTS = "Arbo Calyx Deni Fero Gliss Hexa Junto Kelpo Lumi Mica Nebu Orbi Pavo Quilla Runa Sprig Tavo Umbra Vexo Zephi".split()
_SOFTWARE_ENDS = (
    "base cast chain dex flow grid loom mesh pack path queue ron stack store sync tide trace vault wire works".split()
)
_FIRM_ENDS = ("and Sons", "Works", "Brothers", "Partners", "Holdings", "Guild")
_MONTHS = "January February March April May June July August September October November December".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What fills a statement: how the text says it, and every way an answer may say it."""

    text: str
    accepted: tuple[str, ...]
    """After `patterns.normalise` each is looked for in the answer; the shortest must be unique in the document."""


class Inventor:
    """Draws names and figures whose telling part stands nowhere in `known` (normalised) and was not drawn before."""

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

    def surname(self) -> str:
        return self._fresh(lambda: self._random.choice(_SURNAME_STARTS) + self._random.choice(_SURNAME_ENDS))

    def place_name(self) -> str:
        return self._fresh(lambda: self._random.choice(_PLACE_STARTS) + self._random.choice(_PLACE_ENDS))

    def ship_name(self) -> str:
        return self._fresh(lambda: f"{self._random.choice(_SHIP_WORDS)} {self._random.choice(_SHIP_NOUNS)}")

    def software_name(self) -> str:
        return self._fresh(lambda: self._random.choice(_SOFTWARE_STARTS) + self._random.choice(_SOFTWARE_ENDS))

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
        return Value(text=f"{self._random.choice(_FIRST_NAMES)} {surname}", accepted=(surname,))

    def place(self) -> Value:
        name = self.place_name()
        return Value(text=name, accepted=(name,))

    def firm(self) -> Value:
        name = self.surname()
        return Value(text=f"{name} {self._random.choice(_FIRM_ENDS)}", accepted=(name,))

    def date(self) -> Value:
        """Days after the 12th: 13/5 and 5/13 then mean the same. The year alone would repeat."""
        written = self._fresh(
            lambda: (
                f"{self._random.randrange(13, 29)} {self._random.choice(_MONTHS)} {self._random.randrange(2031, 2079)}"
            )
        )
        day, month, year = written.split()
        number = _MONTHS.index(month) + 1
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
