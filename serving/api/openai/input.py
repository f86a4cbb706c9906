"""From a chat completion or a response as it was asked to one record of ours: who said what, and what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serving.api.errors import ApiError
from serving.api.openai.fields import (
    CHAT_FIELDS,
    RESPONSE_FIELDS,
    ChatBody,
    ChatFormat,
    ChatMessage,
    ChatPart,
    Extension,
    GivenFile,
    InputItem,
    InputPart,
    ResponseBody,
    SamplingBody,
    TextFormat,
    TextOptions,
    unsupported,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
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
class ParsedRequest:
    """What a client of OpenAI's dialect asks for."""

    model: str
    parts: tuple[MessagePart, ...]
    longfold: Extension
    sampling: Mapping[str, Any]
    """Of a conversation with the model itself: fields of `pipeline.llm.model.Sampling`, as far as given."""
    sampling_params: tuple[str, ...]
    """The same under the names that the client used."""
    format_param: str
    """What this surface calls the format of an answer."""
    messages_param: str
    stream: bool = False
    background: bool = False
    store: bool = True
    include_usage: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    echo: Mapping[str, Any] = field(default_factory=dict)
    """What a response object repeats of its request."""

    def messages(self) -> tuple[dict[str, str], ...]:
        """The conversation for a model's chat template: one text per message."""
        texts: dict[int, tuple[str, list[str]]] = {}
        for part in self.parts:
            texts.setdefault(part.message, (part.role, []))[1].append(part.text)
        return tuple({"role": role, "content": "\n".join(parts)} for role, parts in texts.values())


def read_chat(body: ChatBody) -> ParsedRequest:
    """Raises ApiError 400 with `param` for what is not supported."""
    ignored = CHAT_FIELDS.check(body.model_extra or {})
    max_tokens = {name: getattr(body, name) for name in ("max_completion_tokens", "max_tokens") if getattr(body, name)}
    return ParsedRequest(
        model=body.model,
        parts=tuple(_chat_parts(body.messages)),
        longfold=body.longfold or Extension(),
        sampling=_sampling(body, max_tokens, body.response_format),
        sampling_params=(*max_tokens, *_given(body)),
        format_param="response_format",
        messages_param="messages",
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        metadata=body.metadata or {},
        ignored=ignored,
    )


def read_response(body: ResponseBody) -> ParsedRequest:
    """Raises ApiError 400 with `param` for what is not supported."""
    ignored = RESPONSE_FIELDS.check(body.model_extra or {})
    max_tokens = {"max_output_tokens": body.max_output_tokens} if body.max_output_tokens else {}
    background, store = bool(body.background), body.store is not False
    if background and not store:
        raise ApiError(400, "A background response is kept until it is fetched: store cannot be false.", param="store")
    parts = tuple(_response_parts(body))
    if not parts:  # an empty list, or nothing but what a model thought before
        raise ApiError(400, "There is nothing to answer; send at least one message.", "empty_input", "input")
    return ParsedRequest(
        model=body.model,
        parts=parts,
        longfold=body.longfold or Extension(),
        sampling=_sampling(body, max_tokens, body.text.format if body.text else None),
        sampling_params=(*max_tokens, *_given(body)),
        format_param="text.format",
        messages_param="input",
        stream=bool(body.stream),
        background=background,
        store=store,
        metadata=body.metadata or {},
        ignored=ignored,
        echo={
            "instructions": body.instructions,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "max_output_tokens": body.max_output_tokens,
            "text": _as_sent(body.text) or {"format": {"type": "text"}},
            "store": store,
        },
    )


def _sampling(
    body: SamplingBody, max_tokens: Mapping[str, int], answer_format: ChatFormat | TextFormat | None
) -> dict[str, Any]:
    sampling = body.sampling()
    if max_tokens:
        sampling["max_output_tokens"] = next(iter(max_tokens.values()))
    if schema := answer_format.schema_text() if answer_format else "":
        sampling["json_schema"] = schema
    return sampling


def _as_sent(part: TextOptions | None) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True) if part else {}


def _given(body: SamplingBody) -> list[str]:
    """The sampling fields that ask for something, but not a temperature that nobody named."""
    return [name for name in body.sampling() if name in body.model_fields_set]


def _chat_parts(messages: Sequence[ChatMessage]) -> Iterator[MessagePart]:
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        if (message.model_extra or {}).get("tool_calls"):
            raise unsupported(f"{param}.tool_calls")
        content = message.content or ""
        if isinstance(content, str):
            yield MessagePart(role=message.role, message=index, text=content, param=f"{param}.content")
            continue
        for place, part in enumerate(content):
            yield _chat_part(message.role, index, part, f"{param}.content[{place}]")


def _chat_part(role: str, index: int, part: ChatPart, param: str) -> MessagePart:
    if part.type == "text" and part.text is not None:
        return MessagePart(role=role, message=index, text=part.text, param=param)
    if part.type == "file" and part.file is not None:
        return MessagePart(role=role, message=index, file=_file(part.file, f"{param}.file"), param=param)
    raise _missing(f"{param}.{part.type}")


def _response_parts(body: ResponseBody) -> Iterator[MessagePart]:
    if body.instructions:
        yield MessagePart(role="system", message=0, text=body.instructions, param="instructions")
    if isinstance(body.input, str):
        yield MessagePart(role="user", message=1, text=body.input, param="input")
        return
    for index, item in enumerate(body.input):
        param = f"input[{index}]"
        if item.type == "message":
            yield from _item_parts(item, index + 1, param)
        elif item.type != "reasoning":  # a part that stands by itself is the user's
            yield _response_part("user", index + 1, item, param)


def _item_parts(item: InputItem, index: int, param: str) -> Iterator[MessagePart]:
    if item.role is None or item.content is None:
        raise _missing(f"{param}.{'role' if item.role is None else 'content'}")
    content = item.content or ""
    if isinstance(content, str):
        yield MessagePart(role=item.role, message=index, text=content, param=f"{param}.content")
        return
    for place, part in enumerate(content):
        yield _response_part(item.role, index, part, f"{param}.content[{place}]")


def _response_part(role: str, index: int, part: InputPart | InputItem, param: str) -> MessagePart:
    if part.type == "input_file":
        named = {name: getattr(part, name) for name in GivenFile.model_fields}
        file = GivenFile(**named, **part.model_extra or {})
        return MessagePart(role=role, message=index, file=_file(file, param), param=param)
    if part.text is None:
        raise _missing(f"{param}.text")
    return MessagePart(role=role, message=index, text=part.text, param=param)


def _file(file: GivenFile, param: str) -> GivenFile:
    if (file.model_extra or {}).get("file_url"):
        raise unsupported(f"{param}.file_url", "nothing is fetched from the network; upload the file")
    if bool(file.file_id) == bool(file.file_data):
        raise ApiError(400, f"{param} needs one of file_id and file_data.", "missing_required_parameter", param)
    return file


def _missing(param: str) -> ApiError:
    return ApiError(400, f"{param} is missing.", "missing_required_parameter", param)
