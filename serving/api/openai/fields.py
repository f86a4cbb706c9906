"""What of OpenAI's request bodies is used, what is ignored, and what is refused: explicit tables.

Used      obeyed, or refused later where the chosen way cannot obey it
Hints     accepted and without effect; the answer's `longfold.ignored` names them
Default   accepted only with the value that asks for nothing
Other     refused as unknown, with `param`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.api.errors import ApiError, not_json
from serving.api.native.bodies import JobLimits, JobOptions, Metadata

SAMPLING = ("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty")
"""A strategy draws in its own way (greedy unless it says so), so there these are hints."""
_COMMON_HINTS = {
    "user", "safety_identifier", "service_tier", "parallel_tool_calls",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
}  # fmt: skip
CHAT_USED = {
    "messages", "model", "stream", "stream_options", "response_format", "max_tokens", "max_completion_tokens",
    "metadata", "longfold", "temperature", "stop", "seed",
}  # fmt: skip
CHAT_HINTS = _COMMON_HINTS | {"store", "reasoning_effort", "verbosity", "prediction"}
CHAT_DEFAULTS: Mapping[str, Sequence[Any]] = {
    "n": [1],
    "logprobs": [False],
    "top_logprobs": [0],
    "logit_bias": [{}],
    "modalities": [["text"]],
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "functions": [[]],
    "function_call": ["none", "auto"],
    "audio": [],
    "web_search_options": [],
    "moderation": [],
    "top_p": [1],
    "presence_penalty": [0],
    "frequency_penalty": [0],
}
RESPONSES_USED = {
    "model", "input", "instructions", "background", "stream", "stream_options", "store", "text", "metadata",
    "max_output_tokens", "temperature", "longfold",
}  # fmt: skip
RESPONSES_HINTS = _COMMON_HINTS | {"reasoning", "truncation", "max_tool_calls"}
RESPONSES_DEFAULTS: Mapping[str, Sequence[Any]] = {
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "previous_response_id": [],
    "conversation": [],
    "prompt": [],
    "include": [[]],
    "context_management": [],
    "moderation": [],
    "background_options": [],
    "image": [],
    "access_programs": [],
    "top_logprobs": [0],
    "top_p": [1],
}

Body = TypeVar("Body", bound=BaseModel)
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class Edge(BaseModel):
    """A part of a body whose fields are all known to us."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OpenEdge(BaseModel):
    """A part of a body that clients of other versions fill with more; the tables decide."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Extension(Edge):
    """The object `longfold` of a request; every field is optional."""

    file_ids: list[str] = Field(default=[], max_length=1000)
    task: str | None = None
    choices: list[str] = Field(default=[], max_length=26)
    options: JobOptions = JobOptions()
    limits: JobLimits = JobLimits()
    evidence: bool = True
    """Whether the answer comes with its quotes and their places."""
    progress: Literal["none", "reasoning"] = "none"
    """With "reasoning", a stream tells its progress as reasoning text."""
    on_chunk_error: Literal["continue", "strict"] = "continue"

    @property
    def run_only(self) -> str:
        """The first field given that only the reading of a document obeys; empty if there is none."""
        given: dict[str, Any] = {
            "task": self.task,
            "choices": self.choices,
            "options": self.options.model_dump(exclude_unset=True, exclude_none=True),
            "limits": self.limits.model_dump(exclude_none=True),
            "on_chunk_error": self.on_chunk_error == "strict",
        }
        return next((f"longfold.{name}" for name, value in given.items() if value), "")


class GivenFile(OpenEdge):
    """A file by its id, or in the request as base64 (plain or as a data URL)."""

    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class ChatPart(OpenEdge):
    type: str
    text: str | None = None
    file: GivenFile | None = None


class ChatMessage(OpenEdge):
    role: str
    content: str | list[ChatPart] | None = None


class StreamOptions(OpenEdge):
    include_usage: bool | None = None


class ChatBody(OpenEdge):
    """What is read of a chat completion request."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    metadata: Metadata | None = None
    longfold: Extension | None = None


class InputPart(GivenFile):
    type: str
    text: str | None = None


class InputItem(OpenEdge):
    type: str = "message"
    role: str = ""
    content: str | list[InputPart] = ""


class ResponseBody(OpenEdge):
    """What is read of a request for a response."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    background: bool | None = None
    stream: bool | None = None
    store: bool | None = None
    text: dict[str, Any] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    metadata: Metadata | None = None
    longfold: Extension | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable:
    """Which of a body's fields do what."""

    used: frozenset[str]
    hints: frozenset[str]
    defaults: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def check(self, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the hints that are ignored, and the sampling fields that a pass-through would have to refuse."""
        ignored: list[str] = []
        unusual: list[str] = []
        for name, value in given.items():
            if value is None or name in self.used:
                continue
            if name in self.hints:
                ignored.append(name)
            elif name not in self.defaults:
                raise ApiError(400, f"Unknown parameter: {name[:64]!r}.", "unknown_parameter", name[:64])
            elif value not in self.defaults[name]:
                if name not in SAMPLING:
                    raise unsupported(name)
                unusual.append(name)
        return ignored, unusual


CHAT_FIELDS = FieldTable(used=frozenset(CHAT_USED), hints=frozenset(CHAT_HINTS), defaults=CHAT_DEFAULTS)
RESPONSE_FIELDS = FieldTable(
    used=frozenset(RESPONSES_USED), hints=frozenset(RESPONSES_HINTS), defaults=RESPONSES_DEFAULTS
)


def unsupported(param: str, why: str = "") -> ApiError:
    """400 for something OpenAI has and Longfold has not."""
    return ApiError(400, f"{param} is not supported here{': ' + why if why else ''}.", "unsupported_parameter", param)


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The JSON an answer is to be, as a schema."""

    schema: Mapping[str, Any]

    @classmethod
    def read(cls, wanted: Mapping[str, Any] | None, param: str) -> Self | None:
        """Of `response_format` (the schema one level down) or `text.format`; None if plain text is wanted."""
        kind = (wanted or {"type": "text"}).get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return cls({"type": "object"})
        if kind != "json_schema" or wanted is None:
            raise ApiError(400, "The format is text, json_object or json_schema.", "invalid_value", f"{param}.type")
        schema = wanted.get("json_schema", wanted)
        schema = schema.get("schema") if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ApiError(400, "A json_schema format needs a schema.", "missing_required_parameter", param)
        return cls(schema)


def parse_body(body: type[Body], raw: bytes) -> Body:
    """Read a body. Raises ApiError 400 that names the first field at fault; its value is not repeated."""
    try:
        return body.model_validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        if fault["type"] == "json_invalid":
            raise not_json() from None
        param = _dotted([part for part in fault["loc"] if not _is_type_name(part)])
        codes = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}
        code = codes.get(fault["type"], "invalid_value")
        raise ApiError(400, f"{param or 'The body'}: {fault['msg']}.", code, param or None) from None


def _is_type_name(part: int | str) -> bool:
    """Pydantic names the alternatives of a union within the place of a fault."""
    return isinstance(part, str) and (part in ("str", "int") or part.startswith("list["))


def _dotted(places: Sequence[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places)
    return text.lstrip(".")


def body_schema(body: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    """For the OpenAPI document: these bodies are read by hand, because their errors are OpenAI's."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, definitions), "example": dict(example)}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, Mapping):
        if (reference := schema.get("$ref")) is not None:
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            return _inlined({**definitions[reference.rpartition("/")[2]], **rest}, definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(value, definitions) for value in schema]
    return schema
