"""Documents with one or several facts at a chosen depth, and nothing else that comes near them."""

from __future__ import annotations

import functools
import itertools
import random
from bisect import bisect_left
from dataclasses import dataclass

from benchmarks.data.facts import load_language
from benchmarks.data.haystack import draw_english
from benchmarks.data.names import Inventor, Value
from benchmarks.data.patterns import normalise
from benchmarks.data.plant import Plant
from benchmarks.data.question_set import weave
from pipeline.documents.document import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleDocument:
    """A text, a question and all that an answer must name."""

    text: str
    question: str
    facts: tuple[tuple[str, ...], ...]
    """Per needle the forms of its value, any of which will do."""
    spans: tuple[Span, ...]
    """Per needle the sentence that states it."""


def make_needle_document(seed: int, tokens: int, depth: int, needles: int, repeat: int) -> NeedleDocument:
    """`depth` is the percentage of the haystack before the first needle; further ones lie evenly from there to the end.

    Needles are at the next break between paragraphs. All documents of a seed and length share their haystack.
    """
    paragraphs, known = _haystack(seed, tokens)
    source = random.Random(f"{seed}/needle/{tokens}/{depth}/{needles}/{repeat}")
    inventor = Inventor(source, lambda name: normalise(name) in known)
    question, statements, value_kind = _draw_question(source, inventor, needles)
    values = [inventor.value(value_kind) for _ in range(needles)]
    plants = [_plant(source.choice(statements), value) for value in values]
    before: dict[int, list[Plant]] = {}
    for number, one in enumerate(plants):
        share = (depth + number * (100 - depth) / needles) / 100
        before.setdefault(_gap(paragraphs, share), []).append(one)
    text, places = weave(list(paragraphs), before)
    starts = [places[id(one)] for one in plants]
    return NeedleDocument(
        text=text,
        question=question,
        facts=tuple(value.accepted for value in values),
        spans=tuple(Span(start, start + len(one.text)) for start, one in zip(starts, plants, strict=True)),
    )


@functools.lru_cache(maxsize=1)
def _haystack(seed: int, tokens: int) -> tuple[tuple[str, ...], str]:
    """Paragraphs, and their normalised text. Python's documentation repeats itself beyond about 250K tokens."""
    chars = int(tokens * load_language("en").chars_per_token)
    pieces = draw_english(random.Random(f"{seed}/haystack/{tokens}"), chars, [])
    paragraphs = tuple(paragraph for piece in pieces for paragraph in piece.paragraphs)
    return paragraphs, normalise("\n".join(paragraphs))


def _draw_question(source: random.Random, inventor: Inventor, needles: int) -> tuple[str, tuple[str, ...], str]:
    """Question, statements about its entity with a slot for the value, and the value's kind."""
    english = load_language("en")
    domains = {domain.name: domain for domain in english.domains}
    if needles == 1:
        domain = source.choice(english.domains)
        attribute = source.choice(domain.attributes)
        question, statements, kind = source.choice(attribute.questions), attribute.statements, attribute.value_kind
    else:
        collection = source.choice([one for one in english.collections if one.which])
        domain = domains[collection.domain]
        question, statements, kind = collection.which, collection.statements, collection.value_kind
    entity = inventor.entity(domain.entity)
    return question.format(e=entity), tuple(one.replace("{e}", entity) for one in statements), kind


def _plant(statement: str, value: Value) -> Plant:
    english = load_language("en")
    clause = statement.format(v=value.text)
    return Plant(english.space, text=clause[0].upper() + clause[1:] + english.full_stop)


def _gap(paragraphs: tuple[str, ...], share: float) -> int:
    """Number of the paragraph before which `share` of the text has passed."""
    ends = [0, *itertools.accumulate(len(paragraph) + 2 for paragraph in paragraphs)]
    return bisect_left(ends, share * ends[-1] - 1e-6)
