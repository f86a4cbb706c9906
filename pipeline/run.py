"""One strategy on one question: what it is asked, what it may use, what it plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pipeline.answer import Answer
from pipeline.calibrate import Calibration
from pipeline.dispatch import Dispatcher
from pipeline.document import Document
from pipeline.gate_chunks import GateSettings
from pipeline.steps import StepOptions
from pipeline.token_budget import TokenBudget
from pipeline.tokenizer import Tokenizer

if TYPE_CHECKING:  # events carry the plan
    from pipeline.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where reading stops; the answer is then made from what is known. None means no limit."""

    calls: int | None = None
    tokens: int | None = None
    """Prompt and output tokens of all calls."""
    wall_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question about a document, and how to go about it."""

    question: str
    task: str = "question_answering"
    choices: tuple[str, ...] = ()
    """For multiple choice: the options in their order; the answer is one of their letters."""
    strategy: str = "auto"
    chunk_tokens: int | None = None
    """None: what the model's catalogue entry says."""
    gather_tokens: int = 0
    """Tokens of the text before and after each chunk that are shown beside it, with the headings above; 0: none."""
    use_gate: bool = True
    use_support_check: bool = True
    settle_conflicts: bool = True
    """Findings that contradict each other are compared two by two, instead of weighed in one call."""
    reread_rounds: int = 0
    """Of `mapreduce`: how often, at most twice, the model may name parts to read again where its answer is doubtful."""
    copy_quotes: bool = False
    """The model copies quotes, which are then located, instead of naming sentence numbers."""
    best_first: bool = True
    use_rationale: bool | None = None
    """Of `mapreduce`: a finding says what its sentences tell about the question; None: as the model does best."""
    use_structure: bool = True
    """Of `reference`: the parts hand on extracted information and rationale beside their answers."""
    use_scores: bool = True
    """Of `reference`: answers carry a confidence score, by the same rules in each part."""
    limits: Limits = field(default_factory=Limits)

    @property
    def letters(self) -> list[str]:
        """One per option, from A on; empty without options."""
        return [chr(ord("A") + index) for index in range(len(self.choices))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do, known before any call. Counts are bounds where the document decides on the way."""

    strategy: str
    reason: str
    document_tokens: int
    chunks: int
    calls: int
    """At most."""
    prompt_tokens: int
    """At most, the prefix cache left aside."""
    output_tokens: int
    """At most."""
    depth: int
    """Longest chain of calls that wait for one another."""
    graph: str
    """The stages as Mermaid text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Everything a strategy may use. It holds no client, no global and no file of its own."""

    tokenizer: Tokenizer
    budget: TokenBudget
    dispatcher: Dispatcher
    chunk_tokens: int
    gate: GateSettings
    calibration: Calibration
    brief_tasks: tuple[str, ...] = ()
    """Tasks at which this model's findings have no rationale, which is half of what a map call writes."""
    steps: StepOptions = field(default_factory=StepOptions)
    emit: Callable[[Event], None] = lambda _: None


class Strategy(Protocol):
    """One way to get an answer."""

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps that a run comes to, of which it may be paused before each."""
        ...

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        """Pure: no call is made."""
        ...

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        """Answer, telling events on the way. Failed calls reach the answer's coverage; nothing is raised for them."""
        ...
