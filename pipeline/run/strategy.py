"""A strategy, and all that it may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Dispatcher
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.checkpoints import StepOptions
from pipeline.run.events import Event
from pipeline.run.plan import Plan
from pipeline.run.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Everything a strategy may use. It holds no client, no global and no file of its own."""

    tokenizer: Tokenizer
    budget: TokenBudget
    dispatcher: Dispatcher
    chunk_tokens: int
    gate: GateSettings
    calibration: Calibration
    tasks_without_rationale: tuple[str, ...] = ()
    """Tasks at which this model's findings have no rationale, which is half of what a map call writes."""
    steps: StepOptions = field(default_factory=StepOptions)
    emit: Callable[[Event], None] = lambda _: None


class Strategy(Protocol):
    """One way to get an answer."""

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the steps that a run comes to, of which it may be paused before each."""
        ...

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of a `Request` that a run obeys; another one is refused."""
        ...

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        """Pure: no call is made."""
        ...

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        """Answer, telling events on the way. Failed calls reach the answer's coverage; nothing is raised for them."""
        ...
