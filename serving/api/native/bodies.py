"""What a caller may say about a job, and how it becomes the records that the pipeline understands."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict

from pipeline import strategies
from pipeline.chunks.split import SMALLEST_CHUNK_TOKENS
from pipeline.errors import UnknownName
from pipeline.strategies import STRATEGIES, check_step, find_strategy
from pipeline.tasks import TASKS, load_task
from serving.api.errors import from_longfold
from serving.jobs.job import JobRequest
from serving.storage.document_ref import DocumentRef

_MAX_FILES = 200
_MAX_CHOICES = 26


def _as_integer(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


AS_INTEGER = BeforeValidator(_as_integer)
"""To JSON, 5.0 is an integer. It stands behind the limits, or they are missing in the description."""

_NOT_BLANK = r"\S"

_MetadataName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_MetadataValue = Annotated[str, StringConstraints(max_length=512)]
Metadata = Annotated[dict[_MetadataName, _MetadataValue], Field(max_length=16)]
"""OpenAI's limits."""


class Strict(BaseModel):
    """What is known to us to the last field, and of the types it says: `0` is not `false`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class JobOptions(Strict):
    """How to go about it; what is left out, the model's catalogue entry says."""

    chunk_tokens: Annotated[int, Field(ge=SMALLEST_CHUNK_TOKENS, le=1_000_000), AS_INTEGER] | None = None
    """Size of a chunk in the model's tokens."""
    gather_tokens: Annotated[int, Field(ge=0, le=100_000), AS_INTEGER] = 0
    """Tokens of neighbouring text, and the headings above, that are shown beside each chunk."""
    use_gate: bool = True
    """Ask first, with one token, which chunks are worth reading closely."""
    use_support_check: bool = True
    """Ask of each finding's evidence whether it states the answer."""
    settle_conflicts: bool = True
    """Compare findings that contradict each other two by two, instead of weighing all in one call."""
    copy_quotes: bool = False
    """The model copies quotes instead of naming sentences."""
    best_first: bool = True
    """Read the likeliest chunks first."""
    use_rationale: bool | None = None
    """Of `mapreduce`: findings say what their sentences tell about the question; left out: as the model does best."""
    use_structure: bool = True
    """Of `reference`: the parts hand on extracted information and rationale beside their answers."""
    use_scores: bool = True
    """Of `reference`: answers carry a confidence score."""


class JobLimits(Strict):
    """Where reading stops; the answer is then made from what is known."""

    calls: Annotated[int, Field(ge=1, le=10**9), AS_INTEGER] | None = None
    tokens: Annotated[int, Field(ge=1, le=10**12), AS_INTEGER] | None = None
    """Prompt and output tokens of all calls."""
    wall_time_s: Annotated[float, Field(gt=0, le=10**7)] | None = None


_CHOICES_OR_NOT: JsonDict = {
    "anyOf": [
        {"properties": {"choices": {"maxItems": 0}, "task": {"not": {"const": "multiple_choice"}}}},
        {
            "required": ["choices"],
            "properties": {"choices": {"minItems": 2}, "task": {"enum": ["multiple_choice", None]}},
        },
    ]
}


def _none_or_several(choices: list[str]) -> list[str]:
    if len(choices) == 1:
        raise ValueError("a multiple-choice question needs at least two choices")
    return choices


class RunFields(Strict):
    """What both dialects may say about the reading of a document."""

    model_config = ConfigDict(json_schema_extra=_CHOICES_OR_NOT)
    task: Annotated[str, StringConstraints(max_length=64), Field(json_schema_extra={"enum": [*TASKS]})] | None = None
    """None: multiple_choice with choices, else question_answering."""
    choices: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=10_000)]],
        Field(max_length=_MAX_CHOICES),
        AfterValidator(_none_or_several),
    ] = []
    """Of a multiple-choice question, in their order; at least two."""
    options: JobOptions = JobOptions()
    limits: JobLimits = JobLimits()
    on_chunk_error: Literal["continue", "strict"] = "continue"
    """Strict: a chunk that cannot be read fails the job."""

    @model_validator(mode="after")
    def _choices_are_for_multiple_choice(self) -> Self:
        if (self.task_name == "multiple_choice") != bool(self.choices):
            raise ValueError("choices and the task multiple_choice go together")
        return self

    @property
    def task_name(self) -> str:
        return self.task or ("multiple_choice" if self.choices else "question_answering")


class JobBody(RunFields):
    """A question about documents: files that were uploaded, a text, or both (the text comes last)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "question": "Which colour is the door?",
                    "text": "The house stood on a hill. Its door was green.",
                    "strategy": "mapreduce",
                    "options": {"chunk_tokens": 2000},
                    "limits": {"calls": 500},
                    "metadata": {"ticket": "4711"},
                },
                {"question": "Who signed the contract?", "file_ids": ["file-01K9ZJ3W5T8Q4V6X2B7N9M1C0D"]},
            ],
            "allOf": [
                _CHOICES_OR_NOT,
                {
                    "anyOf": [
                        {"required": ["text"], "properties": {"text": {"type": "string"}}},
                        {"required": ["file_ids"], "properties": {"file_ids": {"minItems": 1}}},
                    ]
                },
            ],
        }
    )
    question: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000),
        Field(json_schema_extra={"pattern": _NOT_BLANK}),
    ]
    file_ids: Annotated[list[Annotated[str, StringConstraints(max_length=64)]], Field(max_length=_MAX_FILES)] = []
    text: Annotated[str, Field(json_schema_extra={"pattern": _NOT_BLANK})] | None = None
    text_name: Annotated[str, StringConstraints(min_length=1, max_length=255)] = "text"
    """What the text is called in evidence."""
    strategy: Annotated[str, StringConstraints(max_length=64), Field(json_schema_extra={"enum": [*STRATEGIES]})] = (
        "auto"
    )
    pause_before: Annotated[str, StringConstraints(max_length=64)] = ""
    """Name of a step of the strategy: the job pauses before it, to be looked at and to be changed."""
    metadata: Metadata = {}
    """The caller's own; given back unread."""

    @model_validator(mode="after")
    def _is_about_something(self) -> Self:
        if not self.file_ids and self.text is None:
            raise ValueError("give the document as file_ids or as text")
        return self


class ResumeBody(Strict):
    """How a paused job goes on; without a body it goes on as it is, to its end."""

    state: dict[str, Any] | None = None
    """In the place of the checkpoint's state, in the same form."""
    pause_before: Annotated[str, StringConstraints(max_length=64)] = ""
    """Where to pause the next time."""


def check_pause(strategy: str, step: str) -> None:
    """Raise ApiError 404 for a step that the strategy does not have; it lists those that it has."""
    try:
        check_step(strategy, step)
    except UnknownName as error:
        raise from_longfold(error, "pause_before") from error


def check_names(strategy: str, task: str) -> None:
    """Raise ApiError 404 for a strategy or task that does not exist; it lists those that do."""
    for param, find, name in (("strategy", find_strategy, strategy), ("task", load_task, task)):
        try:
            find(name)
        except UnknownName as error:
            raise from_longfold(error, param) from error


def check_options(strategy: str, options: JobOptions, param: str) -> None:
    """Raise ApiError 404 for an option that the strategy would not obey; it lists those that it has."""
    for name in options.model_dump(exclude_unset=True, exclude_none=True):
        try:
            strategies.check_options(strategy, [name])
        except UnknownName as error:
            raise from_longfold(error, f"{param}.{name}") from error


def job_request(body: JobBody, documents: tuple[DocumentRef, ...]) -> JobRequest:
    """The body as it is stored: only what the caller said, so that defaults stay those of the day it runs."""
    return JobRequest(
        question=body.question,
        strategy=body.strategy,
        task=body.task_name,
        choices=tuple(body.choices),
        documents=documents,
        options=body.options.model_dump(exclude_unset=True, exclude_none=True),
        limits=body.limits.model_dump(exclude_unset=True, exclude_none=True),
        on_chunk_error=body.on_chunk_error,
        pause_before=body.pause_before,
        metadata=body.metadata,
    )
