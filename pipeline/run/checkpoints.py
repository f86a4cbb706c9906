"""Between the steps of a run: count, remember, stop for a person to look, go on with what they made of it.

A strategy says before each step which state the step begins from. A run is a function of its calls' results, and the
journal gives completed calls back for nothing; so a checkpoint is that state and no more. A run is resumed by running
it again, and edited or forked by giving another state at one of its steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pipeline.errors import StateInvalid, TooManySteps
from pipeline.findings.finding import Finding, Findings

State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state before one step."""

    number: int
    """Counted from 1 within a run."""
    name: str
    """Of the step that comes next."""
    state: str
    """As JSON (`run/edits.py`)."""
    edited: str | None = None
    """What a person put in its place."""
    paused: bool = False
    """Whether the run stopped here, so that it goes on when it comes here again."""
    origin: str = ""
    """The run that came here first, if this one was forked from it."""


class History(Protocol):
    """The checkpoints of one run. `RunHistory` keeps them in the journal."""

    @property
    def run_id(self) -> str: ...

    def find(self, number: int) -> Checkpoint | None:
        """What is known of the checkpoint from an earlier time, or from the run this one was forked from."""
        ...

    @property
    def paused_at(self) -> int:
        """Number of the last checkpoint that a person has looked at; 0 if there is none."""
        ...

    def save(self, number: int, name: str, state: str, *, paused: bool) -> None:
        """Keep the checkpoint; an edit of it stays."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """What whoever asks wants between the steps of a run."""

    pause_before: str = ""
    """Stop before the next step of this name that a person has not looked at yet."""
    most: int | None = None
    """Steps that a run may take; one more is TooManySteps."""
    history: History | None = None
    """Where checkpoints are kept; None: nowhere."""


class RunPaused(Exception):
    """A run that stopped where it was asked to. No fault: its calls and its state are kept, and it can go on."""

    def __init__(self, run_id: str, checkpoint: Checkpoint, state: object) -> None:
        super().__init__(f"Paused before step {checkpoint.number} ({checkpoint.name}) of run {run_id}.")
        self.run_id = run_id
        self.checkpoint = checkpoint
        self.state = state
        """The step's record, as the strategy has it; edited, if the checkpoint is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStep:
    """A step that has its place among the others; its state may still be coming together."""

    number: int
    name: str
    held: bool
    """Whether all of the state must be there before any of it is used: a person may want it otherwise."""


class Steps:
    """The steps of one run, in order."""

    def __init__(
        self,
        options: StepOptions,
        *,
        write: Callable[[Any], str],
        read: Callable[[str, Any], Any],
        warn: Callable[[str], None],
    ) -> None:
        """`write` and `read` turn a state to JSON and back (`run/edits.py`); what `warn` gets is in the answer."""
        self._options = options
        self._write = write
        self._read = read
        self._warn = warn
        self._taken = 0

    def take(self, name: str, state: State) -> State:
        """The state that the next step, `name`, begins from: `state`, or what a person put in its place.

        Raises RunPaused, TooManySteps, and StateInvalid for an edit that does not fit.
        """
        return self.close(self.open(name), state)

    def take_streamed(self, name: str, findings: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
        """The same for findings that are still arriving when the step begins.

        Nothing waits: they are handed on as they come, and the checkpoint is taken when all have. Only where the step
        is held they wait for the last.
        """
        return self._pass_on(self.open(name), findings)

    async def _pass_on(self, step: OpenStep, findings: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
        came: list[Finding] = []
        async for finding in findings:
            came.append(finding)
            if not step.held:
                yield finding
        settled = self.close(step, Findings(findings=tuple(came)))
        for finding in settled.findings if step.held else ():
            yield finding

    def open(self, name: str) -> OpenStep:
        """Count one more step. Raises TooManySteps."""
        most = self._options.most
        if most is not None and self._taken >= most:
            raise TooManySteps(f"The run may take {most} steps, and {name!r} would be one more.")
        self._taken += 1
        number = self._taken
        held = self._is_paused_at(number, name) or self._edited(number) is not None
        return OpenStep(number=number, name=name, held=held)

    def _is_paused_at(self, number: int, name: str) -> bool:
        history = self._options.history
        return name == self._options.pause_before and number > (history.paused_at if history else 0)

    def _edited(self, number: int) -> Checkpoint | None:
        before = self._options.history.find(number) if self._options.history else None
        return before if before is not None and before.edited is not None else None

    def close(self, step: OpenStep, state: State) -> State:
        """The state is complete: keep it, and give the one to go on with. Raises RunPaused and StateInvalid."""
        number, name = step.number, step.name
        history = self._options.history
        paused = self._is_paused_at(number, name)
        if history is None and not paused:
            return state
        written = self._write(state)
        before = self._edited(number)
        if before is not None:
            state = self._apply(before, name, written, state)
        if history is not None:
            history.save(number, name, written, paused=paused)
        if paused:
            edited = before.edited if before else None
            checkpoint = Checkpoint(number=number, name=name, state=written, edited=edited, paused=True)
            raise RunPaused(history.run_id if history else "", checkpoint, state)
        return state

    def _apply(self, before: Checkpoint, name: str, written: str, state: State) -> State:
        """The edited state; the answer will say that there was an edit."""
        assert before.edited is not None
        if before.name != name:
            raise StateInvalid(
                f"Step {before.number} was edited as the one before {before.name!r}, but the run has come to {name!r} "
                "this time. Edit what it has come to."
            )
        self._warn(f"The state before step {before.number} ({name}) was edited by hand.")
        if written != before.state:
            self._warn(
                f"The run came to step {before.number} with another state than the one that was edited; "
                "the edit was used."
            )
        edited: State = self._read(before.edited, state)
        return edited
