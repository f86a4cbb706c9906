"""What can go wrong, split by whose fault it is.

    LongfoldError           exit code
    ├─ CallerError          2   the request: never retried
    │  ├─ DocumentUnreadable      ├─ EmptyDocument       ├─ QuestionTooLong
    │  ├─ UnknownName             ├─ SettingInvalid      ├─ ContextTooSmall
    │  ├─ ModelIncomplete         ├─ NothingToResume     ├─ DocumentTooLong
    │  ├─ PromptTooLong           ├─ TemplateRefused     ├─ UploadTooLarge
    │  ├─ IdempotencyMismatch     ├─ WrongState          ├─ DatabaseUnusable
    │  ├─ TooManySteps            └─ StateInvalid
    ├─ CapacityError        3   temporarily unavailable: retried by the dispatcher, and only there
    │  ├─ ReplicaUnavailable      ├─ CallTimedOut        ├─ Overloaded
    │  ├─ OutOfDisk               ├─ OutOfMemory         ├─ NetworkUnavailable
    │  ├─ DatabaseBusy            └─ QuotaExceeded
    ├─ ModelError           4   the output: the model is asked once more
    │  ├─ MalformedOutput         └─ CollapseStalled
    └─ InternalError        5   ours: never retried, never hidden
       ├─ ContextOverflow         └─ LeaseLost

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
    """No unfinished job of the command line is known; ask the question with `longfold ask`."""


class DocumentTooLong(CallerError):
    """The document does not fit the model's context; take another strategy or a larger context."""


class UploadTooLarge(CallerError):
    """The upload is larger than this server accepts; split it, or have LONGFOLD_MAX_UPLOAD_MIB raised."""


class IdempotencyMismatch(CallerError):
    """The idempotency key was used before with another request; take a new key."""


class WrongState(CallerError):
    """The state of the job or run does not allow this; look at its state first."""


class DatabaseUnusable(CallerError):
    """The database cannot be used as it is; run `longfold db check`."""


class TooManySteps(CallerError):
    """The run has taken as many steps as it may; resume it with more."""


class StateInvalid(CallerError):
    """The edited state does not fit the step; the message says where, and what would."""


class PromptTooLong(CallerError):
    """The messages and their answer do not fit the model's context; shorten them or ask about a file."""

    def __init__(self, message: str = "", *, over_tokens: int = 0) -> None:
        """`over_tokens` is how many tokens too many there are."""
        super().__init__(message)
        self.over_tokens = over_tokens


class TemplateRefused(CallerError):
    """The model's chat template does not allow this sequence of roles; begin with a system or user message."""


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
    """The disk is full; free some space and try again."""

    retryable = False


class OutOfMemory(CapacityError):
    """The model does not fit into the free memory; stop other programs or take a smaller model."""

    retryable = False


class NetworkUnavailable(CapacityError):
    """A download failed because the network cannot be reached; connect, or give a local model directory."""

    retryable = False


class DatabaseBusy(CapacityError):
    """The database did not answer in time, for others kept it locked or it is away; try again in a moment."""


class QuotaExceeded(CapacityError):
    """The key's limit is reached; wait, or have the limit raised."""

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: when the same request would be accepted; None if waiting does not help."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


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


class LeaseLost(InternalError):
    """Another runner has taken the job over; this one stops, and nothing it writes counts any more."""
