"""Ways to ask the same question: one mechanism off at a time, or another strategy altogether."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.errors import UnknownName
from pipeline.findings.confidence import Calibration
from pipeline.run.strategy import Resources

SMALLEST_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A change to a run, and its label."""

    name: str
    takes_away: str = ""
    """The improvement that is missing; empty if none is."""
    adds: str = ""
    """What the default leaves off; empty if nothing is added."""
    request: Mapping[str, Any] = field(default_factory=dict)
    resources: Callable[[Resources], Resources] = lambda resources: resources

    @property
    def label(self) -> str:
        return f"with {self.adds}" if self.adds else f"without {self.takes_away}"


def _keep_every_finding(resources: Resources) -> Resources:
    return replace(resources, calibration=replace(resources.calibration, keep_probability=0.0))


def _gate_by_model_alone(resources: Resources) -> Resources:
    return replace(resources, gate=replace(resources.gate, lexical_nats=0.0))


def _believe_the_words(resources: Resources) -> Resources:
    """The stated confidence through the weights of a model that was never fitted."""
    words = Calibration(gate=0.0, support=0.0)
    return replace(
        resources, calibration=replace(resources.calibration, intercept=0.0, gate=0.0, support=0.0, words=words.words)
    )


def _halve_chunks(resources: Resources) -> Resources:
    return replace(resources, chunk_tokens=max(SMALLEST_CHUNK_TOKENS, resources.chunk_tokens // 2))


COLLECT = "collect"
DEFAULT = "default"
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(name=COLLECT, resources=_keep_every_finding),
        Variant(name=DEFAULT),
        Variant(name="no_gate", takes_away="relevance gate", request={"use_gate": False}),
        Variant(name="gate_without_words", takes_away="BM25 beside the gate", resources=_gate_by_model_alone),
        Variant(name="no_support", takes_away="support check", request={"use_support_check": False}),
        Variant(name="no_settling", takes_away="comparison of rivals", request={"settle_conflicts": False}),
        Variant(name="stated_confidence", takes_away="calibrated confidence", resources=_believe_the_words),
        Variant(name="unstructured", takes_away="rationale in findings", request={"use_rationale": False}),
        Variant(
            name="unstructured_stated",
            takes_away="rationale in findings and calibrated confidence",
            request={"use_rationale": False},
            resources=_believe_the_words,
        ),
        Variant(name="rationale", adds="rationale in findings", request={"use_rationale": True}),
        Variant(name="copied_quotes", takes_away="evidence by pointer", request={"copy_quotes": True}),
        Variant(name="document_order", takes_away="best chunks first", request={"best_first": False}),
        Variant(name="half_chunks", takes_away="chunks of full size", resources=_halve_chunks),
        Variant(name="reference", takes_away="all of them", request={"strategy": "reference"}),
        Variant(
            name="reference_unscored",
            takes_away="all of them and the confidence scores",
            request={"strategy": "reference", "use_scores": False},
        ),
        Variant(
            name="reference_unstructured",
            takes_away="all of them, extracted information and rationale",
            request={"strategy": "reference", "use_structure": False},
        ),
        Variant(
            name="reference_plain",
            takes_away="all of them, information, rationale and scores",
            request={"strategy": "reference", "use_structure": False, "use_scores": False},
        ),
    )
}
"""`collect` keeps every finding, right and wrong, for the calibration to be fitted on; its answers are not compared."""


def find_variants(names: Sequence[str]) -> list[Variant]:
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        raise UnknownName(f"No variant {unknown[0]!r}; the variants are {', '.join(VARIANTS)}.")
    return [VARIANTS[name] for name in names]
