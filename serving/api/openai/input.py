"""From a chat completion or a response as it was asked to one record of ours: who said what, and what is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serving.api.errors import ApiError
from serving.api.openai.fields import (
    CHAT_FIELDS,
    RESPONSE_FIELDS,
    ChatBody,
    ChatMessage,
    ChatPart,
    Extension,
    GivenFile,
    InputItem,
    InputPart,
    JsonShape,
    ResponseBody,
    unsupported,
)

ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One part of one message: a text, or a file."""

    role: str
    message: int
    text: str = ""
    file: GivenFile | None = None
    param: str = ""
    """Where it stands in the request."""

    @property
    def file_key(self) -> str:
        """One name per file: its id, or its place in the request if it came with it."""
        return (self.file.file_id or f"in {self.param}") if self.file else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a client of OpenAI's dialect asks for."""

    model: str
    said: tuple[Said, ...]
    longfold: Extension
    sampling: Mapping[str, Any]
    """Of a pass-through: max_output_tokens, temperature, stop, seed, json_schema, as far as given."""
    format_param: str
    """What this surface calls the format of an answer."""
    messages_param: str
    stream: bool = False
    background: bool = False
    store: bool = True
    include_usage: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    unusual: tuple[str, ...] = ()
    """Sampling fields that a pass-through would have to obey and cannot."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """What a response object repeats of its request."""

    def messages(self) -> tuple[dict[str, str], ...]:
        """The conversation for a model's chat template: one text per message."""
        texts: dict[int, tuple[str, list[str]]] = {}
        for said in self.said:
            texts.setdefault(said.message, (said.role, []))[1].append(said.text)
        return tuple({"role": role, "content": "\n".join(parts)} for role, parts in texts.values())


def read_chat(body: ChatBody) -> Asked:
    """Raises ApiError 400 with `param` for what is not supported."""
    ignored, unusual = CHAT_FIELDS.check(_extras(body))
    most = body.max_completion_tokens or body.max_tokens
    return Asked(
        model=body.model,
        said=tuple(_chat_parts(body.messages)),
        longfold=body.longfold or Extension(),
        sampling=_sampling(
            max_output_tokens=most,
            temperature=body.temperature,
            seed=body.seed,
            stop=[body.stop] if isinstance(body.stop, str) else body.stop,
            shape=JsonShape.read(body.response_format, "response_format"),
        ),
        format_param="response_format",
        messages_param="messages",
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        metadata=body.metadata or {},
        ignored=tuple(ignored),
        unusual=tuple(unusual),
    )


def read_response(body: ResponseBody) -> Asked:
    """Raises ApiError 400 with `param` for what is not supported."""
    ignored, unusual = RESPONSE_FIELDS.check(_extras(body))
    background, store = bool(body.background), body.store is not False
    if background and not store:
        raise ApiError(400, "A background response is kept until it is fetched: store cannot be false.", param="store")
    return Asked(
        model=body.model,
        said=tuple(_response_parts(body)),
        longfold=body.longfold or Extension(),
        sampling=_sampling(
            max_output_tokens=body.max_output_tokens,
            temperature=body.temperature,
            shape=JsonShape.read((body.text or {}).get("format"), "text.format"),
        ),
        format_param="text.format",
        messages_param="input",
        stream=bool(body.stream),
        background=background,
        store=store,
        metadata=body.metadata or {},
        ignored=tuple(ignored),
        unusual=tuple(unusual),
        echo={
            "instructions": body.instructions,
            "temperature": body.temperature,
            "max_output_tokens": body.max_output_tokens,
            "text": body.text or {"format": {"type": "text"}},
            "store": store,
        },
    )


def _extras(body: ChatBody | ResponseBody) -> Mapping[str, Any]:
    return body.model_extra or {}


def _sampling(*, shape: JsonShape | None, **given: Any) -> dict[str, Any]:
    sampling = {name: value for name, value in given.items() if value is not None}
    return sampling | ({"json_schema": json.dumps(shape.schema)} if shape else {})


def _chat_parts(messages: Sequence[ChatMessage]) -> Iterator[Said]:
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        _check_role(message.role, param)
        if (message.model_extra or {}).get("tool_calls"):
            raise unsupported(f"{param}.tool_calls")
        if message.content is None or isinstance(message.content, str):
            yield Said(role=message.role, message=index, text=message.content or "", param=f"{param}.content")
            continue
        for place, part in enumerate(message.content):
            yield _chat_part(message.role, index, part, f"{param}.content[{place}]")


def _chat_part(role: str, index: int, part: ChatPart, param: str) -> Said:
    if part.type == "text" and part.text is not None:
        return Said(role=role, message=index, text=part.text, param=param)
    if part.type == "file" and part.file is not None:
        return Said(role=role, message=index, file=_file(part.file, f"{param}.file"), param=param)
    if part.type in ("text", "file"):
        raise ApiError(400, f"{param}.{part.type} is missing.", "missing_required_parameter", f"{param}.{part.type}")
    raise unsupported(f"{param}.type", "content parts are text and file")


def _response_parts(body: ResponseBody) -> Iterator[Said]:
    if body.instructions:
        yield Said(role="system", message=0, text=body.instructions, param="instructions")
    if isinstance(body.input, str):
        yield Said(role="user", message=1, text=body.input, param="input")
        return
    for index, item in enumerate(body.input):
        param = f"input[{index}]"
        if item.type in ("input_text", "input_file"):  # a part that stands by itself is said by the user
            part = InputPart.model_validate(item.model_dump())
            yield _response_part("user", index + 1, part, param)
            continue
        yield from _item_parts(item, index + 1, param)


def _item_parts(item: InputItem, index: int, param: str) -> Iterator[Said]:
    if item.type != "message":
        raise unsupported(f"{param}.type", "input items are messages")
    _check_role(item.role, param)
    if isinstance(item.content, str):
        yield Said(role=item.role, message=index, text=item.content, param=f"{param}.content")
        return
    for place, part in enumerate(item.content):
        yield _response_part(item.role, index, part, f"{param}.content[{place}]")


def _response_part(role: str, index: int, part: InputPart, param: str) -> Said:
    if part.type in ("input_text", "output_text") and part.text is not None:
        return Said(role=role, message=index, text=part.text, param=param)
    if part.type == "input_file":
        return Said(role=role, message=index, file=_file(part, param), param=param)
    if part.type in ("input_text", "output_text"):
        raise ApiError(400, f"{param}.text is missing.", "missing_required_parameter", f"{param}.text")
    raise unsupported(f"{param}.type", "content parts are input_text and input_file")


def _file(file: GivenFile, param: str) -> GivenFile:
    if (file.model_extra or {}).get("file_url"):
        raise unsupported(f"{param}.file_url", "nothing is fetched from the network; upload the file")
    if bool(file.file_id) == bool(file.file_data):
        raise ApiError(400, f"{param} needs one of file_id and file_data.", "missing_required_parameter", param)
    return file


def _check_role(role: str, param: str) -> None:
    if role not in ROLES:
        raise unsupported(f"{param}.role", f"roles are {', '.join(ROLES)}")
