"""The two scorers of InfiniteBench in use, rule for rule, faults included: repaired, they would score something else.

`lenient` and `upstream` (see `tasks.SCORERS`) agree on half of the tasks. They deviate from the originals in one thing:
a conversion that crashes those ("97.0" for an integer) scores 0 here and is counted as an error.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.infinitebench.records import Label
from benchmarks.infinitebench.rouge import rouge_lsum
from benchmarks.infinitebench.score_options import score_choice, score_code
from benchmarks.infinitebench.tasks import ScorerName, find_task


@dataclass(frozen=True, slots=True)
class Mark:
    """Marks of one prediction."""

    value: float
    """0 to 1; tables print 100 times the mean."""
    rule: str
    """That decided."""
    error: str = ""
    """An error that would have ended the original scorer."""


def score_prediction(scorer: ScorerName, task: str, prediction: str, labels: Sequence[Label]) -> Mark:
    """Score one output as it is; `post_process` is a step before. Raises UnknownName."""
    rules = _RULES[find_task(task).name]
    rule = rules[0] if scorer == "lenient" else rules[1]
    try:
        return rule(prediction, labels)
    except ValueError as error:
        return Mark(0.0, "error", str(error))


def _any_run(prediction: str, labels: Sequence[Label]) -> Mark:
    return _mark(str(labels[0]) in _digit_runs(prediction), "any digit run")


def _first_run(prediction: str, labels: Sequence[Label]) -> Mark:
    return _mark(_digit_runs(prediction)[:1] == [str(labels[0])], "first digit run")


def _digit_runs(text: str) -> list[str]:
    return re.findall("[0-9]+", text)


def _word(prediction: str, labels: Sequence[Label]) -> Mark:
    return _mark(str(labels[0]) in _words(prediction), "word")


def _words(text: str) -> list[str]:
    return re.sub(r"""[\n:"'.,?!{}]""", " ", text).split()


def _number(prediction: str, labels: Sequence[Label]) -> Mark:
    """Raises ValueError for a decimal where the label is an integer, as the originals do, and for a label of text."""
    label = labels[0]
    if isinstance(label, str):
        raise ValueError(f"the label {label!r} is no number")  # noqa: TRY004  one class for what ends the originals
    found = re.search(r"\d+\.\d+|\d+", prediction)
    if found is None:
        return Mark(0.0, "no number")
    number = float(found.group()) if isinstance(label, float) else int(found.group())
    return _mark(number == label, "first number")


def _english_f1(prediction: str, labels: Sequence[Label]) -> Mark:
    given = _english_words(prediction)
    return Mark(max(_f1(given, _english_words(str(label))) for label in labels), "token F1")


def _english_words(text: str) -> list[str]:
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _chinese_f1(prediction: str, labels: Sequence[Label]) -> Mark:
    given = _chinese_characters(prediction)
    return Mark(max(_f1(given, _chinese_characters(str(label))) for label in labels), "character F1")


def _between(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


CHINESE_PUNCTUATION = (
    _between(0x3001, 0x3003)  # 、。〃
    + _between(0x3008, 0x3011)  # brackets
    + _between(0x3014, 0x301F)
    + "\u3030\u303e\u303f"
    + _between(0xFF01, 0xFF0F)  # full-width forms of ASCII
    + _between(0xFF1A, 0xFF20)
    + _between(0xFF3B, 0xFF40)
    + _between(0xFF5B, 0xFF65)  # with the half-width 。「」、・
    + "–—‘’‛“”„‟…‧﹏·"
)


def _chinese_characters(text: str) -> list[str]:
    bare = text.lower().translate(str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION))
    return list("".join(bare.split()))


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    """Of two multisets; 0 if they share nothing, two empty ones included."""
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(given), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _rouge(prediction: str, labels: Sequence[Label]) -> Mark:
    return Mark(rouge_lsum(prediction, [str(label) for label in labels]), "ROUGE-Lsum F")


def _any_alias_within(prediction: str, labels: Sequence[Label]) -> Mark:
    return _mark(any(str(alias).upper() in prediction.upper() for alias in labels), "any alias as a substring")


def _first_alias_as_word(prediction: str, labels: Sequence[Label]) -> Mark:
    return _mark(str(labels[0]).upper() in _words(prediction.upper()), "first alias as a word")


def _mark(right: bool, rule: str) -> Mark:
    return Mark(float(right), rule)


Rule = Callable[[str, Sequence[Label]], Mark]


def _options(score: Callable[..., tuple[bool, str]], *, lenient: bool) -> Rule:
    def rule(prediction: str, labels: Sequence[Label]) -> Mark:
        text, letter = (str(label) for label in labels)
        return _mark(*score(prediction, text, letter, lenient=lenient))

    return rule


_RULES: Mapping[str, tuple[Rule, Rule]] = {
    "passkey": (_any_run, _first_run),
    "number_string": (_any_run, _first_run),
    "kv_retrieval": (_word, _word),
    "math_find": (_number, _number),
    "longbook_qa_eng": (_english_f1, _english_f1),
    "longbook_qa_chn": (_chinese_f1, _chinese_f1),
    "longbook_sum_eng": (_rouge, _rouge),
    "longbook_choice_eng": (_options(score_choice, lenient=True), _options(score_choice, lenient=False)),
    "code_debug": (_options(score_code, lenient=True), _options(score_code, lenient=False)),
    "longdialogue_qa_eng": (_any_alias_within, _first_alias_as_word),
}
"""Lenient, upstream."""
