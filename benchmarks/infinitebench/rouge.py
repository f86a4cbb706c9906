"""ROUGE-Lsum (Lin 2004, section 3.2), as `rouge_score` computes it without a stemmer; checked against it.

Sentences are lines. For each reference sentence the words of its longest common subsequences with every predicted
sentence are united; their number over the words of the reference is the recall, over those of the prediction the
precision. A word counts at most as often as it occurs in both texts.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]


def rouge_lsum(prediction: str, references: Sequence[str]) -> float:
    """F-measure, 0 to 1, with the best of the references."""
    return max((_f_measure(_sentences(reference), _sentences(prediction)) for reference in references), default=0.0)


def _sentences(text: str) -> list[Words]:
    """Runs of ASCII letters and digits, line by line; any other character separates words."""
    return [re.findall("[a-z0-9]+", line.lower()) for line in text.split("\n") if line]


def _f_measure(reference: Sequence[Words], predicted: Sequence[Words]) -> float:
    asked, given = sum(map(len, reference)), sum(map(len, predicted))
    if not asked or not given:
        return 0.0
    left = [Counter(word for sentence in text for word in sentence) for text in (reference, predicted)]
    hits = 0
    for sentence in reference:
        places = sorted({place for other in predicted for place in _common_places(sentence, other)})
        for word in (sentence[place] for place in places):
            if all(counts[word] > 0 for counts in left):
                hits += 1
                for counts in left:
                    counts[word] -= 1
    recall, precision = hits / asked, hits / given
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def _common_places(reference: Words, predicted: Words) -> list[int]:
    """Places in `reference` of one longest common subsequence; of equally long ones that with the earliest places."""
    lengths = _lengths(reference, predicted)
    places: list[int] = []
    row, column = len(reference), len(predicted)
    while row and column:
        if reference[row - 1] == predicted[column - 1]:
            row, column = row - 1, column - 1
            places.append(row)
        elif lengths[row][column - 1] > lengths[row - 1][column]:
            column -= 1
        else:
            row -= 1
    return places


def _lengths(one: Words, other: Words) -> list[array[int]]:
    """Length of the longest common subsequence of the first i and the first j words, at [i][j]."""
    rows = [array("I", bytes(4 * (len(other) + 1)))]
    for word in one:
        above, row = rows[-1], array("I", [0])
        for column, candidate in enumerate(other):
            row.append(above[column] + 1 if word == candidate else max(above[column + 1], row[column]))
        rows.append(row)
    return rows
