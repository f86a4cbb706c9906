"""The four synthetic tasks at any length, from a seed.

Construction as published; the released files were drawn without a fixed seed and cannot be made again. Each record
depends on seed, size and its number alone, so that a few can be made of a grid without the others.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.infinitebench.records import Record
from benchmarks.infinitebench.tasks import TARGETS

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
NOISE_TOKENS = 24
"""Of cl100k_base."""
KEY_REPEATS = 10
"""Records per depth. The published script says 5; 590 records at 59 depths are 10."""
PUBLISHED_NOISE_LINES = 5220
NOISE_STEPS: Mapping[int, int] = {326: 6, 652: 12, 1305: 22, 2610: 45, 5220: 90, 10440: 180}
"""Noise lines to the step between depths, as published: 8K, 16K, 32K, 64K, 128K, 256K tokens."""

PUBLISHED_PAIRS = 2500
KEYS_DRAWN_PER_PAIR_KEPT = 3000 / PUBLISHED_PAIRS
PAIR_EXAMPLES = 500
PAIR_TOKENS = 36.8
"""Mean of cl100k_base: 89.9 × 1024 tokens for 2500 pairs."""

PUBLISHED_NUMBERS = 30_000
"""As deduced from the released data's length; the published script says twice as many."""
NUMBER_TOKENS = 3
FINDS_PER_TARGET = 50
_HIGHEST = 99
_MARGIN = 20
"""The moving end of the range lies among this many values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """Recipe of one task. `units` are noise lines, pairs or numbers."""

    make: Callable[[int, int, int], Record]
    """From seed, number of the record and units."""
    count: Callable[[int], int]
    """Records of the full grid, from units."""
    published_units: int
    tokens_per_unit: float

    def units_for(self, tokens: int) -> int:
        """For a document of about that many tokens of cl100k_base; 0 asks for the published length."""
        return max(3, round(tokens / self.tokens_per_unit)) if tokens else self.published_units


def depths(noise_lines: int) -> list[int]:
    """Noise lines before the needle: ascending, from none to all, in published steps or about 59 of them."""
    step = NOISE_STEPS.get(noise_lines, max(1, noise_lines // 58))
    return list(range(0, noise_lines + 1, step))


def _needle_document(noise_lines: int, number: int, needle: str) -> str:
    before = depths(noise_lines)[number // KEY_REPEATS]
    return NOISE * before + needle + NOISE * (noise_lines - before)


def make_passkey(seed: int, number: int, noise_lines: int) -> Record:
    """Five digits, each drawn by itself: a key may begin with zeros."""
    source = random.Random(f"{seed}/passkey/{noise_lines}/{number}")
    key = "".join(source.choices("0123456789", k=5))
    needle = f"The pass key is {key}. Remember it. {key} is the pass key.\n"
    return Record(
        id=number,
        context=_needle_document(noise_lines, number, needle),
        input="What is the pass key?",
        labels=(key,),
    )


def make_number_string(seed: int, number: int, noise_lines: int) -> Record:
    """Five digits, then five times one of them doubled in place: ten digits with runs."""
    source = random.Random(f"{seed}/number_string/{noise_lines}/{number}")
    digits = source.choices("0123456789", k=5)
    for _ in range(5):
        place = source.randrange(len(digits))
        digits.insert(place, digits[place])
    key = "".join(digits)
    needle = f"The sequence of digits is {key}. Remember it. {key} is the sequence of digits.\n"
    return Record(
        id=number,
        context=_needle_document(noise_lines, number, needle),
        input="What is the sequence of digits?",
        labels=(key,),
    )


def make_kv_retrieval(seed: int, number: int, pairs: int) -> Record:
    """More pairs are drawn than kept, after a shuffle. The key asked for moves evenly through the object."""
    source = random.Random(f"{seed}/kv_retrieval/{pairs}/{number}")
    drawn = [(_uuid4(source), _uuid4(source)) for _ in range(round(pairs * KEYS_DRAWN_PER_PAIR_KEPT))]
    source.shuffle(drawn)
    kept = dict(drawn[:pairs])
    key = list(kept)[asked_place(number, pairs)]
    return Record(
        id=number,
        context=f"JSON data:\n{json.dumps(kept)}",
        input=f'\nKey: "{key}"\nThe value of this key is: ',
        labels=(kept[key],),
    )


def asked_place(number: int, pairs: int) -> int:
    """Every fifth key of 2500 for 500 records; in other sizes as evenly as it goes."""
    return number * pairs // min(PAIR_EXAMPLES, pairs)


def _uuid4(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def make_math_find(seed: int, number: int, numbers: int) -> Record:
    """Two digits at most, so that many are equal: "second largest" is the second value, not the second place."""
    source = random.Random(f"{seed}/math_find/{numbers}/{number}")
    target = number // FINDS_PER_TARGET
    name = TARGETS[target]
    moves_high = source.random() < 0.5 if name == "median" else "largest" in name
    low = 0 if moves_high else source.randrange(_MARGIN)
    high = source.randrange(_HIGHEST + 1 - _MARGIN, _HIGHEST + 1) if moves_high else _HIGHEST
    values = [source.randint(low, high) for _ in range(numbers)]
    while len(set(values)) < 3:
        values[source.randrange(numbers)] = source.randint(low, high)
    return Record(
        id=number,
        context=str(values),
        input=f"Answer with one number and no other words. The {name} of the list is:",
        labels=(find_value(values, target),),
    )


def find_value(values: list[int], target: int) -> int | float:
    """The value of `TARGETS[target]`. The median of an even count is a float, as Python divides."""
    if TARGETS[target] == "median":
        ordered, half = sorted(values), len(values) // 2
        return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
    distinct = sorted(set(values), reverse="largest" in TARGETS[target])
    return distinct[target % 3]


GENERATORS: Mapping[str, Generator] = {
    "passkey": Generator(
        make=make_passkey,
        count=lambda lines: len(depths(lines)) * KEY_REPEATS,
        published_units=PUBLISHED_NOISE_LINES,
        tokens_per_unit=NOISE_TOKENS,
    ),
    "number_string": Generator(
        make=make_number_string,
        count=lambda lines: len(depths(lines)) * KEY_REPEATS,
        published_units=PUBLISHED_NOISE_LINES,
        tokens_per_unit=NOISE_TOKENS,
    ),
    "kv_retrieval": Generator(
        make=make_kv_retrieval,
        count=lambda pairs: min(PAIR_EXAMPLES, pairs),
        published_units=PUBLISHED_PAIRS,
        tokens_per_unit=PAIR_TOKENS,
    ),
    "math_find": Generator(
        make=make_math_find,
        count=lambda _: FINDS_PER_TARGET * len(TARGETS),
        published_units=PUBLISHED_NUMBERS,
        tokens_per_unit=NUMBER_TOKENS,
    ),
}
