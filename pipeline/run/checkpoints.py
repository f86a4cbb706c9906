"""Between the steps of a run: count, remember, stop for a person to look, go on with what they made of it.

A strategy says before each step which state the step begins from. A run is a function of its calls' results, and the
journal gives completed calls back for nothing; so a checkpoint is that state and no more. A run is resumed by running
it again, and edited or forked by giving another state at one of its steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
    origin: str = ""
    """The run that came here first, if this one was forked from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a person has done to a run so far."""

    run_id: str
    looked_at: int = 0
    """Number of the last checkpoint at which a person let the run go on; 0 if there is none."""
    edits: Mapping[int, Checkpoint] = field(default_factory=dict)
    """By number, the checkpoints that were edited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """What whoever asks wants between the steps of a run."""

    pause_before: str = ""
    """Stop before the next step of this name that a person has not looked at yet."""
    max_steps: int | None = None
    """Steps that a run may take; one more is TooManySteps."""
    history: History | None = None
    """None: nobody will look at this run's checkpoints, so they are not reported."""


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
        report: Callable[[Checkpoint], None],
    ) -> None:
        """`write` and `read` turn a state to JSON and back (`run/edits.py`); what `warn` gets is in the answer.

        `report` hears of every checkpoint that the run does not pause at; a pause is reported by RunPaused.
        """
        self._options = options
        self._write = write
        self._read = read
        self._warn = warn
        self._report = report
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
        max_steps = self._options.max_steps
        if max_steps is not None and self._taken >= max_steps:
            raise TooManySteps(f"The run may take {max_steps} steps, and {name!r} would be one more.")
        self._taken += 1
        number = self._taken
        held = self._is_paused_at(number, name) or self._edited(number) is not None
        return OpenStep(number=number, name=name, held=held)

    def _is_paused_at(self, number: int, name: str) -> bool:
        history = self._options.history
        return name == self._options.pause_before and number > (history.looked_at if history else 0)

    def _edited(self, number: int) -> Checkpoint | None:
        return self._options.history.edits.get(number) if self._options.history else None

    def close(self, step: OpenStep, state: State) -> State:
        """The state is complete: report it, and give the one to go on with. Raises RunPaused and StateInvalid."""
        number, name = step.number, step.name
        history = self._options.history
        paused = self._is_paused_at(number, name)
        if history is None and not paused:
            return state
        written = self._write(state)
        before = self._edited(number)
        if before is not None:
            state = self._apply(before, name, written, state)
        edited = before.edited if before else None
        checkpoint = Checkpoint(number=number, name=name, state=written, edited=edited)
        if paused:
            raise RunPaused(history.run_id if history else "", checkpoint, state)
        self._report(checkpoint)
        return state

    def _apply(self, before: Checkpoint, name: str, written: str, state: State) -> State:
        """The edited state; the answer will say that there was an edit."""
        assert before.edited is not None
        if before.name != name:
            raise StateInvalid(
                f"Step {before.number} was edited as the one before {before.name!r}, but the run has come to {name!r} "
                "this time. Edit what it has come to."
            )
        self._warn(f"The state before step {before.number} ({name}) was edited manually.")
        if written != before.state:
            self._warn(
                f"The run came to step {before.number} with another state than the one that was edited; "
                "the edit was used."
            )
        edited: State = self._read(before.edited, state)
        return edited
