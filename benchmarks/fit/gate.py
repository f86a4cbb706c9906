"""The rule of the relevance gate, fitted on chunks of known worth: what may be left unread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.data.items import document_of
from benchmarks.harness.results import Row
from benchmarks.harness.statistics import auc
from pipeline.findings.confidence import GateSettings
from pipeline.mapreduce.gate import keep_chunks, relevance

RECALL = 0.995
MARGIN_STEP = 0.25
"""Nats; a fitted margin is rounded up to it."""
LEXICAL_NATS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Weights that are tried for the words; the first leaves them out."""
_KEEP_AT_LEAST = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A rule with the recall and the reading that it gives on the measured questions."""

    lexical_nats: float
    keep_at_least: int
    keep_margin: float
    recall: float
    kept_share: float

    @property
    def settings(self) -> GateSettings:
        return GateSettings(
            lexical_nats=self.lexical_nats, keep_margin=self.keep_margin, keep_at_least=self.keep_at_least
        )


def fit_rule(rows: Sequence[Row], keep_at_least: int, *, lexical_nats: float = 0.0, recall: float = RECALL) -> Fit:
    """The smallest margin with which `recall` of the stating chunks is kept beside the best `keep_at_least`."""
    needed = sorted(_margins_needed(rows, keep_at_least, lexical_nats))
    allowed_misses = math.floor((1 - recall) * len(needed) + 1e-9)
    margin = needed[len(needed) - 1 - allowed_misses] if needed else 0.0
    margin = math.ceil(margin / MARGIN_STEP) * MARGIN_STEP
    rule = GateSettings(lexical_nats=lexical_nats, keep_margin=margin, keep_at_least=keep_at_least)
    found, kept = measure_rule(rows, rule)
    return Fit(
        lexical_nats=lexical_nats,
        keep_at_least=keep_at_least,
        keep_margin=margin,
        recall=sum(found) / len(found) if found else math.nan,
        kept_share=sum(kept) / len(kept) if kept else math.nan,
    )


def rules_to_compare(current: GateSettings, rows: Sequence[Row]) -> tuple[Fit, dict[str, GateSettings]]:
    """The fit that keeps least, and by name the rules that a report puts side by side."""
    fits = [fit_rule(rows, k, lexical_nats=nats) for nats in LEXICAL_NATS for k in _KEEP_AT_LEAST]
    best = min(fits, key=lambda fit: (fit.kept_share, fit.keep_at_least))
    without = min(fits[: len(_KEEP_AT_LEAST)], key=lambda fit: (fit.kept_share, fit.keep_at_least))
    return best, {"current": current, "fitted": best.settings, "no words": without.settings}


def held_out_recall(rows: Sequence[Row], keep_at_least: int, lexical_nats: float) -> list[bool]:
    """For each stating chunk whether the rule fitted on the other documents keeps it: what to expect of new ones."""
    found: list[bool] = []
    for name in sorted({document_of(row["key"]) for row in rows}):
        others = [row for row in rows if document_of(row["key"]) != name]
        if others:
            rule = fit_rule(others, keep_at_least, lexical_nats=lexical_nats).settings
            found += measure_rule([row for row in rows if document_of(row["key"]) == name], rule)[0]
    return found


def measure_rule(rows: Sequence[Row], settings: GateSettings) -> tuple[list[bool], list[float]]:
    """For each stating chunk whether it is kept, and for each question the share of chunks kept."""
    found: list[bool] = []
    shares: list[float] = []
    for row in rows:
        kept = set(keep_chunks(dict(enumerate(combined(row, settings.lexical_nats))), settings))
        found += [index in kept for index in row["states"]]
        shares.append(len(kept) / len(row["scores"]))
    return found, shares


def combined(row: Row, lexical_nats: float) -> list[float]:
    """Relevance of each chunk: the model's score and the words' share."""
    lexical = row.get("lexical") or [0.0] * len(row["scores"])
    settings = GateSettings(lexical_nats=lexical_nats)
    return [relevance(score, words, settings) for score, words in zip(row["scores"], lexical, strict=True)]


def _margins_needed(rows: Sequence[Row], keep_at_least: int, lexical_nats: float) -> list[float]:
    margins: list[float] = []
    for row in rows:
        scores = combined(row, lexical_nats)
        ranked = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
        always = set(ranked[:keep_at_least])
        margins += [0.0 if index in always else max(scores) - scores[index] for index in row["states"]]
    return margins


def clear_score(rows: Sequence[Row], lexical_nats: float, precision: float = 0.7) -> float | None:
    """The lowest relevance from which on this share of the chunks states the answer; None if there is none."""
    scored = sorted(
        ((score, index in row["states"]) for row in rows for index, score in enumerate(combined(row, lexical_nats))),
        reverse=True,
    )
    best: float | None = None
    right = 0
    for count, (score, states) in enumerate(scored, start=1):
        right += states
        if count >= 5 and right / count >= precision:
            best = score
    return best


def row_auc(row: Row, lexical_nats: float = 0.0) -> float:
    """Stating chunks against the rest, leaving out chunks that link to or contradict the answer."""
    between = set(row["links"]) | set(row["conflicts"])
    states = set(row["states"])
    scores = combined(row, lexical_nats)
    positive = [scores[index] for index in states]
    negative = [s for index, s in enumerate(scores) if index not in states and index not in between]
    return auc(positive, negative)
