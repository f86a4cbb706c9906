"""What passes from one step of a run to the next, as JSON that a person can read and edit, and back.

A person states words: answers, notes, quotes, how sure they are. Places and probabilities are not in the JSON. What was
left as it was keeps its own; what was changed or added gets them anew, as a model's output does: a quote is located in
the document, or refused, and never believed.
"""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pipeline.chunks.split import Chunk
from pipeline.documents.document import LONE_SURROGATE, Document
from pipeline.errors import StateInvalid
from pipeline.findings.evidence import locate_quote
from pipeline.findings.finding import CHUNK_INDEX, Alignment, Evidence, Finding
from pipeline.llm.tokenizer import Tokenizer

State = TypeVar("State")
"""A dataclass of texts, numbers, findings, evidence, and collections of these; token ids of untrusted text are text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateContext:
    """What a state is read against: where its quotes may be, and how likely its findings are."""

    document: Document
    chunks: Sequence[Chunk]
    tokenizer: Tokenizer
    letters: Sequence[str]
    """Of the options, if the question has any."""
    judge: Callable[[Finding], Finding]
    """Fills in the probability of a finding by its words alone."""


_LEFT_OUT: Mapping[type, frozenset[str]] = {
    Evidence: frozenset({"span", "alignment", "similarity"}),
    Finding: frozenset({"gate_score", "support_score", "probability", "truncated"}),
}
"""What code fills in."""
_ASSUMED: Mapping[type, Mapping[str, Any]] = {
    Evidence: {"chunk_index": None},
    Finding: {"chunk_indices": None, "evidence": [], "rationale": "", "stated_confidence": 3},
}
"""What need not be written by hand."""


def write_state(state: object, tokenizer: Tokenizer) -> str:
    """One line for the same state, always."""
    return json.dumps(_plain(state, tokenizer))


def read_state(text: str, original: State, context: StateContext) -> State:
    """The state that `text` says, of the type of `original`, with all that is in both taken from there.

    Raises StateInvalid, which says where it does not fit and what would.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise StateInvalid(f"Line {error.lineno}, column {error.colno}: this is no JSON ({error.msg}).") from error
    except (ValueError, RecursionError) as error:
        raise StateInvalid(f"The state cannot be read: {error}.") from error
    known: dict[tuple[type, str], object] = {}
    for part in parts(original):  # what is there twice in the same words is the first of them
        known.setdefault(_key(type(part), _plain(part, context.tokenizer)), part)
    return cast("State", _Reader(context, known).read(type(original), value, "the state"))


def parts(value: object) -> Iterator[object]:
    """Every record in a state, itself the first."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from (part for item in value.values() for part in parts(item))
    elif isinstance(value, (list, tuple, Set)):
        yield from (part for item in value for part in parts(item))


def _plain(value: Any, tokenizer: Tokenizer) -> Any:
    """As JSON has it; a set is a list in its order, a choice among texts is its word."""
    if dataclasses.is_dataclass(value):
        shown = _shown(cast("type", type(value)))
        return {name: _plain(getattr(value, field), tokenizer) for name, field in shown.items()}
    if isinstance(value, array):
        return tokenizer.decode(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, tokenizer) for key, item in value.items()}
    if isinstance(value, Set):
        return [_plain(item, tokenizer) for item in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item, tokenizer) for item in value]
    return value


def _shown(kind: type) -> dict[str, str]:
    """Of a record's type: what each field that is shown is called in JSON, and its own name."""
    fields = dataclasses.fields(cast("Any", kind))
    left_out = _LEFT_OUT.get(kind, frozenset())
    return {f.metadata.get("json_name", f.name): f.name for f in fields if f.name not in left_out}


def _key(kind: type, plain: object) -> tuple[type, str]:
    return kind, json.dumps(plain, sort_keys=True)


class _Reader:
    """Reads values of the types that states are made of; `where` is their place, for the message."""

    def __init__(self, context: StateContext, known: Mapping[tuple[type, str], object]) -> None:
        self._context = context
        self._known = known

    def read(self, hint: Any, value: Any, where: str) -> Any:  # noqa: PLR0911  one line per kind of type
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._read_number(arguments[1], value, where)
        if origin in (UnionType, Union):
            return None if value is None else self.read(arguments[0], value, where)
        if dataclasses.is_dataclass(hint):
            return self._read_record(cast("type", hint), value, where)
        if origin in (tuple, list, set):
            return self._read_items(origin, arguments, value, where)
        if origin in (dict, Mapping):
            return self._read_mapping(arguments, _checked(dict, value, where), where)
        if hint is array:
            return self._context.tokenizer.encode_content(_checked(str, value, where))
        return _checked(hint, value, where)

    def _read_number(self, allowed: object, value: object, where: str) -> int:
        if allowed == CHUNK_INDEX:
            allowed = range(len(self._context.chunks))
        assert isinstance(allowed, range)
        number = int(_checked(int, value, where))
        if number not in allowed:
            raise StateInvalid(f"{where}: {number} is not in {allowed.start} to {allowed.stop - 1}.")
        return number

    def _read_items(self, kind: type, arguments: Sequence[Any], value: object, where: str) -> Any:
        items = _checked(list, value, where)
        many = kind is not tuple or arguments[-1] is Ellipsis
        if not many and len(items) != len(arguments):
            raise StateInvalid(f"{where}: {len(arguments)} values are expected, there are {len(items)}.")
        hints = [arguments[0]] * len(items) if many else arguments
        return kind(
            self.read(hint, item, f"{where}[{n}]") for n, (hint, item) in enumerate(zip(hints, items, strict=True))
        )

    def _read_mapping(self, arguments: Sequence[Any], value: Mapping[str, Any], where: str) -> dict[Any, Any]:
        """Its keys are texts in JSON, whatever they are here."""
        read: dict[Any, Any] = {}
        for text, item in value.items():
            key = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
            read[self.read(arguments[0], key, f"{where}, key {text!r}")] = self.read(
                arguments[1], item, f"{where}[{text}]"
            )
        return read

    def _read_record(self, kind: type, value: object, where: str) -> Any:
        if kind is Evidence and isinstance(value, str):
            value = {"quote": value}
        given = {**_ASSUMED.get(kind, {}), **_checked(dict, value, where)}
        unchanged = self._known.get(_key(kind, given))
        if unchanged is not None:
            return unchanged
        shown = _shown(kind)
        if unknown := [name for name in given if name not in shown]:
            raise StateInvalid(f"{where}: {unknown[0]!r} is not known here; the fields are {', '.join(shown)}.")
        if missing := [name for name in shown if name not in given]:
            raise StateInvalid(f"{where}: {missing[0]!r} is missing.")
        if kind is Evidence:
            return self._locate(given, where)
        if kind is Finding:
            given["evidence"] = self.read(tuple[Evidence, ...], given["evidence"], f"{where}.evidence")
            return self._judge(given, where)
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{field: self.read(hints[field], given[name], f"{where}.{name}") for name, field in shown.items()})

    def _judge(self, given: Mapping[str, Any], where: str) -> Finding:
        """A finding by a person's hand is as probable as its words say, and hardly so without a quote."""
        hints = get_type_hints(Finding, include_extras=True)
        evidence: tuple[Evidence, ...] = given["evidence"]
        indices = given["chunk_indices"]
        if indices is None:
            indices = [quote.chunk_index for quote in evidence]
        indices = self.read(hints["chunk_indices"], indices, f"{where}.chunk_indices")
        answer = _checked(str, given["answer"], f"{where}.answer").strip()
        letters = self._context.letters
        if not indices:
            raise StateInvalid(f"{where}.chunk_indices: name the chunk that says it, or give a quote.")
        if not answer:
            raise StateInvalid(f"{where}.answer is empty; take the whole finding out instead.")
        if letters and answer not in letters:
            raise StateInvalid(f"{where}.answer is none of the options {', '.join(letters)}.")
        finding = Finding(
            chunk_indices=tuple(sorted(set(indices))),
            evidence=evidence,
            rationale=_checked(str, given["rationale"], f"{where}.rationale"),
            answer=answer,
            stated_confidence=self.read(
                hints["stated_confidence"], given["stated_confidence"], f"{where}.stated_confidence"
            ),
        )
        return self._context.judge(finding)

    def _locate(self, given: Mapping[str, Any], where: str) -> Evidence:
        """In the chunk that is named; where it does not stand there, in the first that it does.

        What merely resembles it is told, not taken: to a person who writes "article 9", "article 8" is no match.
        """
        context = self._context
        quote = _checked(str, given["quote"], f"{where}.quote").strip()
        chunks = list(context.chunks)
        if given["chunk_index"] is not None:
            chunks.insert(0, chunks.pop(self._read_number(CHUNK_INDEX, given["chunk_index"], f"{where}.chunk_index")))
        closest: Evidence | None = None
        for chunk in chunks if quote else ():
            found = locate_quote(context.document, chunk, quote)
            if found.alignment in {Alignment.EXACT, Alignment.NORMALISED}:
                return found
            if found.span is not None and (closest is None or found.similarity > closest.similarity):
                closest = found
        told = f" Chunk {closest.chunk_index} says: {json.dumps(closest.quote, ensure_ascii=False)}" if closest else ""
        raise StateInvalid(
            f"{where}.quote does not stand in a chunk of the document. Quote it as it stands there, or take it out."
            f"{told}"
        )


_JSON_NAMES: Mapping[type, str] = {
    str: "a text in quotation marks",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list in [ ]",
    dict: "an object in { }",
}


def _checked(kind: type, value: Any, where: str) -> Any:
    """`value`, if it is of that type; a choice among texts by its word."""
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            raise StateInvalid(f"{where} is {value!r}; possible are {', '.join(kind)}.")
        return kind(value)
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise StateInvalid(f"{where}: {_JSON_NAMES[kind]} is expected here, not {json.dumps(value)[:80]}.")
    if kind is str and LONE_SURROGATE.search(str(value)):
        raise StateInvalid(f"{where} holds half of a character, an escape such as \\ud83d without its other half.")
    return value
