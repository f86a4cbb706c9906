# ruff: noqa: SIM905 (word lists)
"""Whether a text holds an answer, however it is written: what both planting and scoring go by."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

REGEX = "re:"
"""An accepted or rejected answer that begins so is a regular expression on the normalised answer."""

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, start=2)
}
_WIDE = r"\u2e80-\u9fff\uf900-\ufaff"


def holds(normalised: str, form: str) -> bool:
    """Whether a normalised text holds `form` as a whole word, number or run of Chinese characters."""
    pattern = form.removeprefix(REGEX) if form.startswith(REGEX) else _pattern(form)
    return bool(pattern) and re.search(pattern, normalised) is not None


def all_of(forms: Iterable[str]) -> str:
    """A form that is held where all of `forms` are, in any order."""
    return REGEX + "^" + "".join(f"(?=.*{_pattern(form)})" for form in forms)


def _pattern(form: str) -> str:
    wanted = normalise(form)
    pattern = re.escape(wanted)
    if re.match(r"[a-z0-9]", wanted):
        pattern = r"(?<![a-z0-9])(?<![0-9]\.)" + pattern
    if re.search(r"[a-z0-9]$", wanted):
        pattern += r"(?![a-z0-9])(?!\.[0-9])"
    return pattern


def normalise(text: str) -> str:
    """Even out case, accents, articles, punctuation, ordinals, thousands separators, number words to 99."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text)).casefold()
    folded = unicodedata.normalize("NFC", "".join(c for c in decomposed if not unicodedata.combining(c)))
    folded = re.sub(r"(?<=\d)[,'\u202f](?=\d{3}\b)", "", folded)
    folded = re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", r"\1", folded)
    folded = re.sub(r"[^\w.]|_|\.(?!\d)|(?<!\d)\.", " ", folded)
    words = [word for word in folded.split() if word not in ("a", "an", "the")]
    joined = " ".join(_digits(words))
    return re.sub(rf"(?<=[{_WIDE}]) +(?=[{_WIDE}\d])|(?<=\d) +(?=[{_WIDE}])", "", joined)


def _digits(words: list[str]) -> list[str]:
    """Write number words as digits: "twenty one" becomes "21"."""
    out: list[str] = []
    tens = False
    for word in words:
        number = _NUMBER_WORDS.get(word)
        if number is None:
            out.append(word)
        elif tens and 0 < number < 10:
            out[-1] = str(int(out[-1]) + number)
        else:
            out.append(str(number))
        tens = number is not None and number >= 20
    return out
