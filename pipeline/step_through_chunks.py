"""One step of LC-Boost (arXiv 2405.15318): a model looks at one chunk and its notes, and chooses an action.

Deciding and using the chunk are one call. Nothing here changes any state; `strategies/lc_boost.py` does.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.chunk_account import ChunkAccount
from pipeline.complete_parsed import complete_one
from pipeline.document import Document, Span
from pipeline.errors import MalformedOutput
from pipeline.finding import Evidence
from pipeline.locate_evidence import find_answer, holds_answer, point_to_sentences
from pipeline.map_chunks import MOST_QUOTES
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.prompt import chat_prompt
from pipeline.running_notes import NoteKeeper, Notes, cut_text
from pipeline.split_document import SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.structured_output import (
    CONFIDENCE,
    TEXT,
    ParsedFields,
    Schema,
    number_list,
    object_schema,
    one_of,
    parse_fields,
    text_list,
    whole_number,
)
from pipeline.tasks import load_prompt

REPAIRS = 1
"""Of an output that cannot be read or an action that is not possible; then the step is a move."""
BEGINNING_TOKENS = 300
QUERY_TOKENS = 64
_STEP_TOKENS = 200
"""Of a step's output, beside the notes."""
_REASON_TOKENS = 160
_MOST_UNREAD_SHOWN = 12


class Action(StrEnum):
    """Ways to get at the document and to use what is there; the task reasoning before them is a call of its own."""

    RETRIEVE = "retrieve"
    MOVE = "move"
    APPEND = "append"
    UPDATE = "update"
    ANSWER = "answer"
    AGGREGATE = "aggregate"


WRITING = (Action.APPEND, Action.UPDATE)
EVERYTHING = (Action.MOVE, *WRITING)
"""What is possible where each part has to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """What the task reasoning came to."""

    everything: bool
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action with what it needs."""

    action: Action
    evidence: tuple[Evidence, ...]
    reason: str
    query: str
    target: int | None
    """Chunk index to move to; None for the next."""
    text: str
    """What is appended, all notes, or the answer."""
    confidence: int


@dataclass(slots=True, kw_only=True)
class Desk:
    """What all steps of one run share."""

    document: Document
    chunks: Sequence[Chunk]
    keeper: NoteKeeper
    account: ChunkAccount


def largest_chunk_tokens(keeper: NoteKeeper) -> int:
    """What notes, question, instruction and output leave of the context."""
    nothing = Chunk(index=9998, span=Span(0, 0), sentences=(), numbered_token_ids=array("I"), affinity="")
    sizes = []
    for actions in (tuple(Action), EVERYTHING):
        call = _step_call(keeper, nothing, Notes(), actions, unread=[9998] * 9999, parts=9999)
        sizes.append(len(call.prompt.token_ids))
    return keeper.resources.budget.room_tokens(
        fixed_tokens=max(sizes) + keeper.most_tokens,
        output_tokens=_output_tokens(keeper),
        at_least=SMALLEST_CHUNK_TOKENS,
    )


async def reason(desk: Desk) -> Approach:
    """Ask once how to go about it. Where the task itself needs every part, nothing is asked."""
    if not desk.keeper.task.gated:
        return Approach(everything=True)
    result = await complete_one(reason_call(desk), _read_approach, desk.account.meter, repairs=REPAIRS)
    return Approach(everything=False) if isinstance(result, CallFailed) else result


def reason_call(desk: Desk) -> Call:
    tokenizer, text = desk.keeper.resources.tokenizer, desk.document.text[: 8 * BEGINNING_TOKENS]
    total = sum(len(sentence.token_ids) for chunk in desk.chunks for sentence in chunk.sentences)
    values = {
        "tokens": tokenizer.encode_template(str(total)),
        "parts": tokenizer.encode_template(str(len(desk.chunks))),
        "beginning": tokenizer.encode_content(text)[:BEGINNING_TOKENS],
        "question": desk.keeper.question_ids,
    }
    schema = object_schema(places=one_of(["one", "several", "everything"]), queries=text_list(3))
    prompt = chat_prompt(tokenizer, own=[load_prompt("lc_boost", "reason").encode(tokenizer, values)])
    sampling = Sampling(max_output_tokens=_REASON_TOKENS, json_schema=schema)
    return desk.keeper.resources.budget.prove(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))


def _read_approach(completion: Completion) -> Approach:
    parsed = parse_fields(completion)
    if parsed.text("places") not in {"one", "several", "everything"}:
        raise MalformedOutput("The task reasoning names no way to go about it.")
    return Approach(everything=parsed.text("places") == "everything", queries=tuple(parsed.texts("queries")))


def step_call(desk: Desk, index: int, notes: Notes, actions: Sequence[Action], unread: Sequence[int]) -> Call:
    """Header and chunk are the same prefix as in other strategies."""
    call = _step_call(desk.keeper, desk.chunks[index], notes, actions, unread=unread, parts=len(desk.chunks))
    return desk.keeper.resources.budget.prove(call)


def _step_call(
    keeper: NoteKeeper, chunk: Chunk, notes: Notes, actions: Sequence[Action], *, unread: Sequence[int], parts: int
) -> Call:
    tokenizer = keeper.resources.tokenizer
    everything = tuple(actions) == EVERYTHING
    values = {
        "part": tokenizer.encode_template(str(chunk.index + 1)),
        "parts": tokenizer.encode_template(str(parts)),
        "notes": keeper.encode(notes.text),
        "question": keeper.question_ids,
    }
    if not everything:
        values["unread"] = tokenizer.encode_template(_unread_text(unread))
        values["actions"] = tokenizer.encode_template(", ".join(actions))
    template = load_prompt("lc_boost", "step_everything" if everything else "step")
    prompt = chat_prompt(
        tokenizer,
        shared=[keeper.task.header.encode(tokenizer, {}), chunk.numbered_token_ids],
        own=[template.encode(tokenizer, values)],
    )
    sampling = Sampling(
        max_output_tokens=_output_tokens(keeper), json_schema=_schema(keeper, chunk, actions, parts=parts)
    )
    return Call(prompt=prompt, sampling=sampling, stage=Stage.MAP, chunk_index=chunk.index, affinity=chunk.affinity)


def _schema(keeper: NoteKeeper, chunk: Chunk, actions: Sequence[Action], *, parts: int) -> str:
    fields: dict[str, Schema] = {
        "sentences": number_list(max(1, len(chunk.sentences)), MOST_QUOTES),
        "reason": TEXT,
        "action": one_of([action.value for action in actions]),
        "query": TEXT,
        "part": whole_number(parts),
        "notes": TEXT,
        "answer": one_of([*keeper.request.letters, ""]) if keeper.request.choices else TEXT,
        "confidence": CONFIDENCE,
    }
    if tuple(actions) == EVERYTHING:
        for name in ("query", "part", "answer", "confidence"):
            del fields[name]
    return object_schema(**fields)


def _output_tokens(keeper: NoteKeeper) -> int:
    return keeper.most_tokens + _STEP_TOKENS


def _unread_text(unread: Sequence[int]) -> str:
    shown = ", ".join(str(index + 1) for index in unread[:_MOST_UNREAD_SHOWN])
    more = len(unread) - _MOST_UNREAD_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown or "none"


async def take_step(
    desk: Desk, index: int, notes: Notes, actions: Sequence[Action], unread: Sequence[int]
) -> Step | CallFailed:
    """Ask for one action. An impossible one is repaired once, and then a failure like unreadable output."""

    def read(completion: Completion) -> Step:
        return _read_step(desk, desk.chunks[index], parse_fields(completion), actions)

    call = step_call(desk, index, notes, actions, unread)
    return await complete_one(call, read, desk.account.meter, repairs=REPAIRS)


def _read_step(desk: Desk, chunk: Chunk, parsed: ParsedFields, actions: Sequence[Action]) -> Step:
    name = parsed.text("action")
    if name not in actions:
        raise MalformedOutput(f"The action {name!r} is not possible; possible are {', '.join(actions)}.")
    action = Action(name)
    text = parsed.text("answer" if action is Action.ANSWER else "notes")
    query = cut_text(parsed.text("query"), QUERY_TOKENS, desk.keeper.resources.tokenizer)
    letters = desk.keeper.request.letters
    if (action in {*WRITING, Action.ANSWER} and not text) or (action is Action.RETRIEVE and not query):
        raise MalformedOutput(f"The action {name!r} comes without what it needs.")
    if action is Action.ANSWER and letters and text not in letters:
        raise MalformedOutput("The answer is none of the options.")
    part = parsed.number("part") or 0
    target = part - 1 if 1 <= part <= len(desk.chunks) and part - 1 != chunk.index else None
    return Step(
        action=action,
        evidence=_evidence(desk.document, chunk, parsed.numbers("sentences"), text),
        reason=parsed.text("reason"),
        query=query,
        target=target,
        text=text,
        confidence=parsed.confidence(),
    )


def _evidence(document: Document, chunk: Chunk, numbers: list[int], text: str) -> tuple[Evidence, ...]:
    """The sentences that were named; if none of them holds the text but another does, that one instead."""
    named = point_to_sentences(document, chunk, numbers)
    if any(holds_answer(evidence, text) for evidence in named):
        return named
    holder = find_answer(document, chunk, text, "")
    return (holder,) if holder else named
