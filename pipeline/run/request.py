"""A question about a document, and how to go about it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


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
    def options(self) -> list[str]:
        """Names of the options that were asked for: of the fields below `strategy`, those that are not as usual."""
        return [option.name for option in _OPTIONS if getattr(self, option.name) != option.default]

    @property
    def letters(self) -> list[str]:
        """One per option, from A on; empty without options."""
        return [chr(ord("A") + index) for index in range(len(self.choices))]


_OPTIONS = [
    option for option in fields(Request) if option.name not in {"question", "task", "choices", "strategy", "limits"}
]
CHUNK_OPTIONS = ("chunk_tokens", "gather_tokens")
"""Of the strategies that cut the document into chunks of a size that can be chosen."""
OPTIONS = tuple(option.name for option in _OPTIONS)
"""Of all strategies; which of them obeys which, `Strategy.options` says."""
