"""Which option an output chose: the rules for En.MC and Code.Debug, tried one after another."""

from __future__ import annotations

import re

from benchmarks.infinitebench.tasks import LETTERS

_CHOICE_PREFIXES = ("answer is:", "answer:", "answer is", "option is")
_CODE_PREFIXES = ("is:", "answer:")


def score_choice(prediction: str, text: str, letter: str, *, lenient: bool) -> tuple[bool, str]:
    """Whether the output chose the option `text` under `letter`, and the rule that decided."""
    output = prediction.strip()
    right = (text, letter)
    if lenient and _last_letter(output, "A-D") in right:
        return True, "last letter of a line"
    if not output:
        return False, "empty"
    if output[0] in LETTERS:
        return output[0] in right, "first character"
    if output in right:
        return True, "whole output"
    plain = _squeeze(re.sub(r"""[\n"'.,?!{}]""", " ", output))
    rest = _after_prefix(plain, ("Answer:",) * lenient + _CHOICE_PREFIXES)
    if rest is not None:
        return rest.startswith(right), "prefix"
    first = next((word for word in plain.split() if len(word) == 1 and word in LETTERS), None)
    return first in right, "first letter"


def score_code(prediction: str, text: str, letter: str, *, lenient: bool) -> tuple[bool, str]:
    """As `score_choice`; options are function names. "A" as an article counts as a letter where letters count."""
    output = prediction.strip()
    if lenient and _last_letter(output, "A-J") == letter:
        return True, "last letter of a line"
    if not lenient and output[:2] in (f"{letter}.", f"{letter}:"):
        return True, "first two characters"
    plain = _squeeze(re.sub(r"""[\n`'"*-]|Option""", " ", output))
    if plain.startswith((letter, text) if lenient else text):
        return True, "beginning"
    rest = _after_prefix(plain, ("answer is:", *("Answer:",) * lenient, *_CODE_PREFIXES))
    if rest is None:
        return False, "none"
    return rest.startswith((letter, text)), "prefix"


def _last_letter(output: str, letters: str) -> str | None:
    """Of the first line with a letter by itself, the last such letter."""
    found = re.search(rf"\b[{letters}]\b(?!.*\b[{letters}]\b)", output)
    return found.group() if found else None


def _after_prefix(output: str, prefixes: tuple[str, ...]) -> str | None:
    """The text after the first prefix in the list that occurs, but for one character; None if none occurs."""
    for prefix in prefixes:
        place = output.find(prefix)
        if place >= 0:
            return output[place + len(prefix) + 1 :]
    return None


def _squeeze(text: str) -> str:
    return re.sub(" {2,}", " ", text)
