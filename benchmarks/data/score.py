# ruff: noqa: SIM905 (word lists)
"""Exact scoring: no model judges, so a score means the same on every machine and on every day."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pipeline.document import Span

if TYPE_CHECKING:
    from benchmarks.data.question_set import BenchItem

Verdict = Literal["right", "wrong", "abstained"]

REGEX = "re:"
"""An accepted or rejected answer that begins so is a regular expression on the normalised answer."""

_ABSTAINS = re.compile(
    r"\b(?:not|never) (?:in document|in text|mentioned|stated|given|provided|specified|found|available|known)\b"
    r"|\b(?:does|do|did) not (?:say|tell|mention|state|give|provide|specify|contain|include)\b"
    r"|\b(?:no|without) (?:information|mention|answer|evidence)\b|\bnothing\b|没有(?:说明|提到|提及|给出)|未提及"
)
"""On a normalised text, which has no articles."""

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, start=2)
}
_WIDE = r"\u2e80-\u9fff\uf900-\ufaff"


def score_answer(item: BenchItem, answer_text: str, found: bool) -> Verdict:
    """Compare an answer with what the document states.

    "abstained": the answer says that the document does not tell; for an absent fact that is "right".
    An answer is right if it holds an accepted form and no rejected one: naming every candidate does not pay.
    """
    if not found or not answer_text.strip():
        return "right" if item.kind == "absent" else "abstained"
    if item.kind == "absent":
        return "wrong"
    answer = normalise(answer_text)
    accepted = any(holds(answer, form) for form in item.accepted)
    return "right" if accepted and not any(holds(answer, form) for form in item.rejected) else "wrong"


def score_prose(item: BenchItem, text: str) -> Verdict:
    """Compare what any system wrote, of which only the words tell whether it abstains.

    An answer that is held counts whatever stands beside it; else the words of `_ABSTAINS` are an abstention.
    """
    verdict = score_answer(item, text, found=True)
    if verdict == "wrong" and _ABSTAINS.search(normalise(text)):
        return "right" if item.kind == "absent" else "abstained"
    return verdict


def states_answer(item: BenchItem, quoted: Iterable[Span]) -> bool | None:
    """Whether any quoted span overlaps a sentence that states the answer; None if no sentence does."""
    if not item.spans:
        return None
    quotes = list(quoted)
    return any(is_quoted(span, quotes) for span in item.spans)


def is_quoted(span: Span, quoted: Iterable[Span]) -> bool:
    """Whether any quoted span overlaps it."""
    return any(quote.start < span.end and span.start < quote.end for quote in quoted)


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
