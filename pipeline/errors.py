"""What can go wrong, split by whose fault it is.

    LongfoldError           exit code
    ├─ CallerError          2   the request: never retried
    │  ├─ DocumentUnreadable      ├─ EmptyDocument       ├─ QuestionTooLong
    │  ├─ UnknownName             ├─ SettingInvalid      ├─ ContextTooSmall
    │  ├─ ModelIncomplete         ├─ NothingToResume     └─ DocumentTooLong
    ├─ CapacityError        3   the moment: retried by the dispatcher, and only there
    │  ├─ ReplicaUnavailable      ├─ CallTimedOut        ├─ Overloaded
    │  ├─ OutOfDisk               ├─ OutOfMemory         └─ NetworkUnavailable
    ├─ ModelError           4   the output: the model is asked once more
    │  ├─ MalformedOutput         └─ CollapseStalled
    └─ InternalError        5   ours: never retried, never hidden
       └─ ContextOverflow

A cancelled command ends with exit code 130. A class's docstring is its default message and says what to do.
"""

from __future__ import annotations

from typing import ClassVar


class LongfoldError(Exception):
    """Something went wrong in Longfold."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class CallerError(LongfoldError):
    """The request cannot be served as it is; change it and ask again."""

    exit_code = 2


class DocumentUnreadable(CallerError):
    """The document is not text and not a format that can be read; convert it to text first."""


class EmptyDocument(CallerError):
    """The document holds no text; there is nothing to ask about."""


class QuestionTooLong(CallerError):
    """The question leaves no room for the document in the model's context; shorten it."""


class UnknownName(CallerError):
    """No such name; the message lists the known ones."""


class SettingInvalid(CallerError):
    """A setting has a value that cannot be used; the message names it and what is expected."""


class ContextTooSmall(CallerError):
    """The model's context cannot hold the prompts; serve it with a larger context or take another model."""


class ModelIncomplete(CallerError):
    """The model directory lacks files; pull the model again or point to a complete directory."""


class NothingToResume(CallerError):
    """No interrupted run is known; ask the question without --resume."""


class DocumentTooLong(CallerError):
    """The document does not fit the model's context; take another strategy or a larger context."""


class CapacityError(LongfoldError):
    """The system cannot do this now; it may work later."""

    retryable = True
    exit_code = 3


class ReplicaUnavailable(CapacityError):
    """No replica answers; `longfold status` shows their state."""


class CallTimedOut(CapacityError):
    """A model call did not end within its deadline."""


class Overloaded(CapacityError):
    """More calls are waiting than can be served; try again later."""


class OutOfDisk(CapacityError):
    """The disk is full; free some space and run the command again."""

    retryable = False


class OutOfMemory(CapacityError):
    """The model does not fit into the free memory; stop other programs or take a smaller model."""

    retryable = False


class NetworkUnavailable(CapacityError):
    """A download failed because the network cannot be reached; connect, or give a local model directory."""

    retryable = False


class ModelError(LongfoldError):
    """The model's output cannot be used."""

    exit_code = 4


class MalformedOutput(ModelError):
    """The model's output does not follow its schema."""

    retryable = True


class CollapseStalled(ModelError):
    """Collapsing the findings did not make them shorter; they cannot be reduced to one answer."""


class InternalError(LongfoldError):
    """A fault in Longfold itself; please report it."""

    exit_code = 5


class ContextOverflow(InternalError):
    """A prompt and its output do not fit the context: the token budget was wrong."""
