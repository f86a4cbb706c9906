"""A seeded set of long documents with questions whose answers, and their places, are known.

Facts in plain prose are hidden among real text. Their names and figures are drawn from large lists and occur
once in a document, so an answer can come from nowhere else, a model's memory included. Several questions share a
document, because Longfold reuses the prefix cache across them. Some ask for what the real text itself states.

The haystack is the running Python's own documentation: a set is the same for the same seed *and Python version*.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import cast

from benchmarks.data import haystack
from benchmarks.data.facts import Language, load_language
from benchmarks.data.items import KINDS, BenchDocument, BenchItem, Kind
from benchmarks.data.names import ChineseInventor, Inventor
from benchmarks.data.patterns import normalise
from benchmarks.data.plant import Plant, PlantedQuestion, plant
from benchmarks.data.real_questions import RealQuestion, answerable
from pipeline.documents.document import Span
from pipeline.errors import UnknownName

MIX: tuple[str, ...] = (
    "lookup", "absent", "real", "two_hop", "conflict", "lookup",
    "absent", "real", "conflict", "two_hop", "lookup", "lookup",
)  # fmt: skip
"""Of twelve: six single facts (two of the real text), two each of absent, two-hop and conflicting ones."""


def make_documents(
    seed: int,
    documents: int,
    tokens_per_document: int,
    questions_per_document: int,
    languages: tuple[str, ...] = ("en", "en", "en", "zh"),
    kinds: tuple[str, ...] = MIX,
) -> list[BenchDocument]:
    """Make documents in the `languages` in turn; lengths are approximate, counted in characters per token.

    Questions take their `kinds` in turn; "real" asks for what the real text states. Raises UnknownName.
    """
    if unknown := sorted(set(kinds) - {*KINDS, "real"}):
        raise UnknownName(f"No kind of question {unknown[0]!r}; the kinds are {', '.join(KINDS)}, real.")
    wanted = tuple(kinds[place % len(kinds)] for place in range(questions_per_document))
    return [
        _make_document(seed, number, languages[number % len(languages)], tokens_per_document, wanted)
        for number in range(documents)
    ]


def _make_document(seed: int, number: int, code: str, tokens: int, wanted: tuple[str, ...]) -> BenchDocument:
    source = random.Random(f"{seed}/{number}")
    language = load_language(code)
    kinds = list(wanted)
    source.shuffle(kinds)
    chars = max(1_000, int(tokens * language.chars_per_token) - len(wanted) * 500 * (1 if code == "en" else 0))
    paragraphs, real = _draw_paragraphs(source, language, chars, kinds.count("real"))
    known = normalise("\n".join(paragraphs))
    inventor_class = ChineseInventor if code == "zh" else Inventor
    inventor = inventor_class(source, lambda name: normalise(name) in known)
    planted = _plant_all(source, language, inventor, kinds, real)
    text, places = weave(paragraphs, _place(source, planted, len(paragraphs) + 1))
    items = list(_items(text, planted, places, real, f"{seed}-{number}", seed, code))
    source.shuffle(items)
    return BenchDocument(
        name=f"{seed}-{number}-{code}", text=text, items=tuple(items), language=code, synthetic=code == "zh"
    )


def _draw_paragraphs(
    source: random.Random, language: Language, chars: int, real_count: int
) -> tuple[list[str], list[RealQuestion]]:
    if language.code == "zh":
        return haystack.draw_chinese(source, chars), []
    answers = answerable()
    real = source.sample(sorted(answers, key=lambda question: question.question), min(real_count, len(answers)))
    first: list[haystack.Piece] = []
    for question in real:
        if not any(question.finds(piece.text()) for piece in first):
            first.append(answers[question])
    pieces = haystack.draw_english(source, chars, first)
    return [paragraph for piece in pieces for paragraph in piece.paragraphs], real


def _plant_all(
    source: random.Random,
    language: Language,
    inventor: Inventor,
    kinds: list[str],
    real: list[RealQuestion],
) -> list[PlantedQuestion]:
    """Where the real text has too few questions, a planted fact takes the place."""
    spare = kinds.count("real") - len(real)
    wanted = [kind for kind in kinds if kind != "real"] + ["lookup"] * spare
    return [plant(cast("Kind", kind), source, language, inventor) for kind in wanted]


def _place(source: random.Random, planted: list[PlantedQuestion], gaps: int) -> dict[int, list[Plant]]:
    """Plants by the gap between paragraphs they go into."""
    before: dict[int, list[Plant]] = {}
    for question in planted:
        for gap, one in zip(_gaps(source, question, gaps), question.plants, strict=True):
            before.setdefault(gap, []).append(one)
    return before


def weave(paragraphs: list[str], before: Mapping[int, list[Plant]]) -> tuple[str, dict[int, int]]:
    """Put plants before the paragraphs of their numbers; returns the text and where each (by identity) starts."""
    parts: list[str] = []
    places: dict[int, int] = {}
    position = 0
    for gap in range(len(paragraphs) + 1):
        for one in before.get(gap, []):
            places[id(one)] = position
            parts.append(one.text)
            position += len(one.text) + 2
        if gap < len(paragraphs):
            parts.append(paragraphs[gap])
            position += len(paragraphs[gap]) + 2
    return "\n\n".join(parts) + "\n", places


def _gaps(source: random.Random, question: PlantedQuestion, count: int) -> list[int]:
    """Plants that must lie apart get gaps a third of the document or more from one another, in order."""
    gaps = [source.randrange(count) for _ in question.plants]
    apart = [place for place, one in enumerate(question.plants) if one.keep_apart]
    if len(apart) == 2:
        first, second = apart
        distance = count // 3
        gaps[first] = source.randrange(count - distance)
        gaps[second] = source.randrange(gaps[first] + distance, count)
        if question.kind == "two_hop" and source.random() < 0.5:  # the link may also come after the fact
            gaps[first], gaps[second] = gaps[second], gaps[first]
    return gaps


def _items(
    text: str,
    planted: list[PlantedQuestion],
    places: dict[int, int],
    real: list[RealQuestion],
    prefix: str,
    seed: int,
    code: str,
) -> Iterator[BenchItem]:
    for number, question in enumerate(planted):
        spans = {"states": [], "links": [], "conflicts": []}  # type: dict[str, list[Span]]
        for one in question.plants:
            for sentence in one.marked:
                start = places[id(one)] + sentence.start
                spans[sentence.role].append(Span(start, start + len(sentence.text)))
        yield BenchItem(
            id=f"{prefix}-{number}",
            question=question.question,
            kind=question.kind,
            accepted=question.accepted,
            rejected=question.rejected,
            spans=tuple(sorted(spans["states"])),
            link_spans=tuple(sorted(spans["links"])),
            conflict_spans=tuple(sorted(spans["conflicts"])),
            language=code,
            seed=seed,
        )
    for number, known in enumerate(real, start=len(planted)):
        yield BenchItem(
            id=f"{prefix}-{number}",
            question=known.question,
            kind="lookup",
            accepted=known.accepted,
            rejected=known.rejected,
            spans=tuple(Span(*match.span()) for pattern in known.patterns() for match in re.finditer(pattern, text)),
            language=code,
            seed=seed,
            from_real_text=True,
        )
