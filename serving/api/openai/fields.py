"""What of OpenAI's request bodies is used, what is ignored, and what is refused.

Fields    of the body classes: obeyed, or refused later where the chosen way cannot obey it
Hints     accepted and without effect; the answer's `longfold.ignored` names them
Default   accepted only with the value that asks for nothing
Other     refused as unknown, with `param`, unless it is null
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.llm.model import Sampling
from serving.api.errors import ApiError, not_json
from serving.api.native.bodies import AS_INTEGER, Metadata, RunFields

_COMMON_HINTS = {
    "user", "safety_identifier", "service_tier", "parallel_tool_calls",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
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
}
RESPONSES_HINTS = _COMMON_HINTS | {"reasoning", "truncation", "max_tool_calls", "include"}
RESPONSES_DEFAULTS: Mapping[str, Sequence[Any]] = {
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "previous_response_id": [],
    "conversation": [],
    "prompt": [],
    "context_management": [],
    "moderation": [],
    "background_options": [],
    "image": [],
    "access_programs": [],
    "top_logprobs": [0],
}

_MAX_SEED = 9 * 10**18
"""Of 64 bits, and of those that the description, which writes limits as floating-point numbers, can tell exactly."""
_MAX_INTEGER = 2**53 - 1
"""Beyond it JavaScript's numbers have gaps."""
_NEUTRAL: Mapping[str, Any] = {sampling.name: sampling.default for sampling in fields(Sampling)}
"""What asks for nothing."""

Body = TypeVar("Body", bound=BaseModel)
Role = Literal["system", "developer", "user", "assistant"]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


def _filled(name: str) -> dict[str, Any]:
    """JSON Schema of an object that has this field, and something in it."""
    return {"required": [name], "properties": {name: {"type": "string", "minLength": 1}}}


def _of_type(kind: str, **needed: str) -> dict[str, Any]:
    """JSON Schema of a part of this type, which needs these fields."""
    types = {name: {"type": json_type} for name, json_type in needed.items()}
    return {"required": ["type", *needed], "properties": {"type": {"const": kind}, **types}}


_PLAIN: dict[str, Any] = {"properties": {"type": {"enum": ["text", "json_object"]}}}
_NO_URL: dict[str, Any] = {"allOf": [{"properties": {"file_url": {"enum": [None, ""]}}}]}
"""Nothing is fetched from the network."""


class OpenEdge(BaseModel):
    """A part of a body that clients of other versions fill with more; the tables decide."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Extension(RunFields):
    """The object `longfold` of a request; every field is optional."""

    file_ids: list[str] = Field(default=[], max_length=1000)
    evidence: bool = True
    """Whether the answer comes with its quotes and their places."""
    progress: Literal["none", "reasoning"] = "none"
    """With "reasoning", a stream tells its progress as reasoning text."""

    @property
    def run_only(self) -> str:
        """The first field given that only the reading of a document obeys; empty if there is none."""
        given = self.model_dump(exclude_defaults=True, include=set(RunFields.model_fields))
        return next((f"longfold.{name}" for name, value in given.items() if value), "")


class GivenFile(OpenEdge):
    """A file by its id, or in the request as base64 (plain or as a data URL)."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_filled("file_id"), _filled("file_data")], **_NO_URL})
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class ChatPart(OpenEdge):
    model_config = ConfigDict(
        json_schema_extra={"oneOf": [_of_type("text", text="string"), _of_type("file", file="object")]}
    )
    type: Literal["text", "file"]
    text: str | None = None
    file: GivenFile | None = None


class ChatMessage(OpenEdge):
    model_config = ConfigDict(json_schema_extra={"allOf": [{"properties": {"tool_calls": {"enum": [[], None]}}}]})
    role: Role
    content: str | list[ChatPart] | None = None


class StreamOptions(OpenEdge):
    include_usage: bool | None = None


class SamplingBody(OpenEdge):
    """How a conversation's next message is drawn: OpenAI's fields, and vLLM's top_k, min_p and repetition_penalty."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1), AS_INTEGER] | None = None
    """0 and -1 both ask for nothing."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.1, le=10)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-_MAX_SEED, le=_MAX_SEED), AS_INTEGER] | None = None

    def sampling(self) -> dict[str, Any]:
        """The fields of `pipeline.llm.model.Sampling` that were given, those that ask for nothing left out.

        Greedy without a temperature, but who narrows the draw wants one: then it is OpenAI's 1.
        """
        given = {name: value for name in SamplingBody.model_fields if (value := getattr(self, name)) is not None}
        if isinstance(given.get("stop"), str):
            given["stop"] = [given["stop"]]
        if given.get("top_k") == -1:
            del given["top_k"]
        wanted = {name: value for name, value in given.items() if value != _NEUTRAL[name]}
        if "temperature" not in given and wanted.keys() & {"top_p", "top_k", "min_p"}:
            wanted["temperature"] = 1.0
        return wanted


class JsonShape(OpenEdge):
    """The JSON that an answer is to be."""

    json_schema: dict[str, Any] = Field(alias="schema")


class ChatFormat(OpenEdge):
    """How `response_format` says it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_PLAIN, _of_type("json_schema", json_schema="object")]})
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonShape | None = None

    def schema_text(self) -> str:
        """The schema as text; empty if plain text is wanted. Raises ApiError 400 if it is missing."""
        shape = self.json_schema.json_schema if self.json_schema else None
        return _schema_text(self.type, shape, "response_format.json_schema")


class TextFormat(OpenEdge):
    """How `text.format` says it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_PLAIN, _of_type("json_schema", schema="object")]})
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")

    def schema_text(self) -> str:
        """As of `ChatFormat`."""
        return _schema_text(self.type, self.json_schema, "text.format.schema")


def _schema_text(kind: str, shape: Mapping[str, Any] | None, param: str) -> str:
    if kind == "text":
        return ""
    if kind == "json_schema" and shape is None:
        raise ApiError(400, f"{param} is missing.", "missing_required_parameter", param)
    return json.dumps(shape if kind == "json_schema" else {"type": "object"})


class TextOptions(OpenEdge):
    format: TextFormat | None = None


class ChatBody(SamplingBody):
    """What is read of a chat completion request."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ChatFormat | None = None
    max_tokens: Annotated[int, Field(ge=1, le=_MAX_INTEGER), AS_INTEGER] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=_MAX_INTEGER), AS_INTEGER] | None = None
    metadata: Metadata | None = None
    longfold: Extension | None = None


class _PartFields(OpenEdge):
    text: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


_TEXT_OR_FILE = (
    _of_type("input_text", text="string"),
    _of_type("output_text", text="string"),
    {**_of_type("input_file"), "oneOf": [_filled("file_id"), _filled("file_data")], **_NO_URL},
)


class InputPart(_PartFields):
    model_config = ConfigDict(json_schema_extra={"oneOf": [*_TEXT_OR_FILE]})
    type: Literal["input_text", "output_text", "input_file"]


class InputItem(_PartFields):
    """A message; or a part of the user's message, by itself; or what a model thought before, which is not read."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["role", "content"],
                    "properties": {
                        "type": {"const": "message"},
                        "role": {"type": "string"},
                        "content": {"type": ["string", "array"]},
                    },
                },
                *_TEXT_OR_FILE,
                _of_type("reasoning"),
            ]
        }
    )
    type: Literal["message", "input_text", "output_text", "input_file", "reasoning"] = "message"
    role: Role | None = None
    content: str | list[InputPart] | None = None


class ResponseBody(SamplingBody):
    """What is read of a request for a response."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    text: TextOptions | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=_MAX_INTEGER), AS_INTEGER] | None = None
    metadata: Metadata | None = None
    longfold: Extension | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable:
    """What to do with the fields that a body class does not have."""

    hints: frozenset[str]
    defaults: Mapping[str, Sequence[Any]]

    def check(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the hints that are ignored. Raises ApiError 400 for a field that would have to be obeyed."""
        for name, value in given.items():
            if value is None or name in self.hints:
                continue
            if name not in self.defaults:
                raise ApiError(400, f"Unknown parameter: {name[:64]!r}.", "unknown_parameter", name[:64])
            if not any(value == known and type(value) is type(known) for known in self.defaults[name]):
                raise unsupported(name)  # types too: to Python `true` is 1
        return tuple(name for name, value in given.items() if name in self.hints and value not in (None, []))


CHAT_FIELDS = FieldTable(hints=frozenset(CHAT_HINTS), defaults=CHAT_DEFAULTS)
RESPONSE_FIELDS = FieldTable(hints=frozenset(RESPONSES_HINTS), defaults=RESPONSES_DEFAULTS)


def unsupported(param: str, why: str = "") -> ApiError:
    """400 for something OpenAI has and Longfold has not."""
    return ApiError(400, f"{param} is not supported here{': ' + why if why else ''}.", "unsupported_parameter", param)


def parse_body(body: type[Body], raw: bytes) -> Body:
    """Read a body. Raises ApiError 400 that names the field at fault; its value is not repeated."""
    try:
        return body.model_validate_json(raw)
    except ValidationError as error:
        # Of a union every alternative is at fault; the one that was meant fits furthest down.
        fault = max(error.errors(include_url=False, include_input=False), key=lambda fault: len(fault["loc"]))
        if fault["type"] == "json_invalid":
            raise not_json(fault.get("ctx", {}).get("error", "")) from None
        param = _dotted([part for part in fault["loc"] if not _is_type_name(part)])
        code = _FAULT_CODES.get(fault["type"], "invalid_value")
        if fault["type"] == "literal_error" and fault["loc"][-1] in ("role", "type"):
            code = "unsupported_parameter"
        message = fault["msg"].removeprefix("Value error, ")
        raise ApiError(400, f"{param or 'The body'}: {message}.", code, param or None) from None


_FAULT_CODES = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}


def _is_type_name(part: int | str) -> bool:
    """Pydantic names the alternatives of a union within the place of a fault."""
    return isinstance(part, str) and (part in ("str", "int") or part.startswith("list["))


def _dotted(places: Sequence[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places)
    return text.lstrip(".")


def body_schema(body: type[BaseModel], table: FieldTable, example: Mapping[str, Any]) -> dict[str, Any]:
    """For the OpenAPI document: these bodies are read by hand, because their errors are OpenAI's."""
    schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    schema["properties"] |= {name: {"description": "Ignored."} for name in sorted(table.hints)}
    schema["properties"] |= {name: {"enum": [*values, None]} for name, values in table.defaults.items()}
    schema["additionalProperties"] = {"type": "null"}
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
