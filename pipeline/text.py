"""Text as words to compare by: lower case, digits without their group separators, unspaced scripts in pairs.

And a duration in words.
"""

from __future__ import annotations

import unicodedata

import regex  # type: ignore[import-untyped]

_ARTICLES = frozenset({"a", "an", "the"})
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
"""With its combining marks, without which Hindi falls into consonants."""
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc]")
_GROUPED = regex.compile(r"(?<=\d)[,\u202f\u00a0'](?=\d{3}(?!\d))")


def words_of(text: str) -> list[str]:
    """Words in their order; a run of characters written without spaces becomes overlapping pairs."""
    even = _GROUPED.sub("", unicodedata.normalize("NFKC", text).casefold())
    words: list[str] = []
    for word in _WORD.findall(even):
        if not word.isascii() and _UNSPACED.match(word) and len(word) > 1:
            words.extend(word[i : i + 2] for i in range(len(word) - 1))
        else:
            words.append(word)
    return words


def answer_key(text: str) -> str:
    """Equal for answers that differ in case, punctuation and articles only; what has no words stands for itself."""
    return " ".join(answer_words(text)) or text.strip()


def answer_words(text: str) -> list[str]:
    """Words without articles; an answer that is nothing else, as the letter A may be, keeps them."""
    words = words_of(text)
    return [word for word in words if word not in _ARTICLES] or words


def contains_words(words: list[str], wanted: list[str]) -> bool:
    """Whether `wanted` stands in `words` as a whole, in its order; False if there is nothing wanted."""
    size = len(wanted)
    return size > 0 and any(words[i : i + size] == wanted for i in range(len(words) - size + 1))


def same_answer(one: str, other: str) -> bool:
    """Equal, or one within the other, after case, punctuation and articles are taken away.

    Answers without a word, as an operator is, are compared as they stand.
    """
    a, b = answer_words(one), answer_words(other)
    return contains_words(a, b) or contains_words(b, a) or answer_key(one) == answer_key(other)


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
