"""One step of LC-Boost (arXiv 2405.15318): a model looks at one chunk and its notes, and chooses an action.

Deciding and using the chunk are one call. Nothing here changes any state; the walk of the strategy does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import NO_CHUNK, SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.errors import MalformedOutput
from pipeline.findings.evidence import point_to_sentences, relocate_to_answer
from pipeline.findings.finding import Evidence
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import (
    CONFIDENCE,
    TEXT,
    ParsedFields,
    Schema,
    answer_schema,
    number_list,
    object_schema,
    one_of,
    parse_fields,
    text_list,
    whole_number,
)
from pipeline.mapreduce.map import MAX_QUOTES
from pipeline.run.run import Run
from pipeline.strategies.shared.notes import Notes, NotesBudget, cut_text

BEGINNING_TOKENS = 300
QUERY_TOKENS = 64
_STEP_TOKENS = 200
"""Of a step's output, beside the notes."""
_REASON_TOKENS = 160
_MAX_UNREAD_SHOWN = 12


class Action(StrEnum):
    """Ways to get at the document and to use what is there; the task reasoning before them is a call of its own."""

    RETRIEVE = "retrieve"
    MOVE = "move"
    APPEND = "append"
    UPDATE = "update"
    ANSWER = "answer"
    AGGREGATE = "aggregate"


EVERYTHING = (Action.MOVE, Action.APPEND, Action.UPDATE)
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
    notes: str
    """What the chunk adds, with whatever action; for update all notes. Empty if it adds nothing."""
    answer: str
    """Of the action answer; else empty."""
    confidence: int


def largest_chunk_tokens(keeper: NotesBudget) -> int:
    """What notes, question, instruction and output leave of the context."""
    nothing = replace(NO_CHUNK, index=9998)
    sizes = []
    for actions in (tuple(Action), EVERYTHING):
        call = _step_call(keeper, nothing, Notes(), actions, unread=[9998] * 9999, parts=9999)
        sizes.append(len(call.prompt.token_ids))
    return keeper.run.resources.budget.room_tokens(
        fixed_tokens=max(sizes) + keeper.max_tokens,
        output_tokens=_output_tokens(keeper),
        min_tokens=SMALLEST_CHUNK_TOKENS,
    )


async def reason(run: Run) -> Approach:
    """Ask once how to go about it. Where the task itself needs every part, nothing is asked."""
    if not run.task.gated:
        return Approach(everything=True)
    result = await complete_parsed(reason_call(run), _read_approach, run.meter)
    if isinstance(result, CallFailed):
        run.account.warnings.append(f"The task reasoning failed, so the search went by words: {result.message}")
        return Approach(everything=False)
    return result


def reason_call(run: Run) -> Call:
    tokenizer, text = run.tokenizer, run.document.text[: 8 * BEGINNING_TOKENS]
    values = {
        "tokens": tokenizer.encode_template(str(run.document_tokens())),
        "parts": tokenizer.encode_template(str(len(run.chunks))),
        "beginning": tokenizer.encode_content(text)[:BEGINNING_TOKENS],
        "question": run.question_ids,
    }
    schema = object_schema(places=one_of(["one", "several", "everything"]), queries=text_list(3))
    prompt = chat_prompt(tokenizer, own=[run.prompt("lc_boost", "reason").encode(tokenizer, values)])
    sampling = Sampling(max_output_tokens=_REASON_TOKENS, json_schema=schema)
    return run.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))


def _read_approach(completion: Completion) -> Approach:
    parsed = parse_fields(completion)
    if parsed.text("places") not in {"one", "several", "everything"}:
        raise MalformedOutput("The task reasoning names no way to go about it.")
    return Approach(everything=parsed.text("places") == "everything", queries=tuple(parsed.texts("queries")))


def step_call(keeper: NotesBudget, index: int, notes: Notes, actions: Sequence[Action], unread: Sequence[int]) -> Call:
    chunks = keeper.run.chunks
    call = _step_call(keeper, chunks[index], notes, actions, unread=unread, parts=len(chunks))
    return keeper.run.resources.budget.check_fits(call)


def _step_call(
    keeper: NotesBudget, chunk: Chunk, notes: Notes, actions: Sequence[Action], *, unread: Sequence[int], parts: int
) -> Call:
    run, tokenizer = keeper.run, keeper.run.tokenizer
    everything = tuple(actions) == EVERYTHING
    values = {
        "part": tokenizer.encode_template(str(chunk.index + 1)),
        "parts": tokenizer.encode_template(str(parts)),
        "notes": keeper.encode(notes.text),
        "question": run.question_ids,
    }
    if not everything:
        values["unread"] = tokenizer.encode_template(_unread_text(unread))
        values["actions"] = tokenizer.encode_template(", ".join(actions))
    own = run.prompt("lc_boost", "step_everything" if everything else "step").encode(tokenizer, values)
    sampling = Sampling(
        max_output_tokens=_output_tokens(keeper), json_schema=_schema(keeper, chunk, actions, parts=parts)
    )
    return chunk_call(chunk, own, sampling, tokenizer, header=run.task.header)


def _schema(keeper: NotesBudget, chunk: Chunk, actions: Sequence[Action], *, parts: int) -> str:
    fields: dict[str, Schema] = {
        "sentences": number_list(len(chunk.sentences), MAX_QUOTES),
        "notes": TEXT,
        "reason": TEXT,
        "action": one_of([action.value for action in actions]),
        "query": TEXT,
        "part": whole_number(parts),
        "answer": answer_schema(keeper.run.request.letters),
        "confidence": CONFIDENCE,
    }
    if tuple(actions) == EVERYTHING:
        for name in ("query", "part", "answer", "confidence"):
            del fields[name]
    return object_schema(**fields)


def _output_tokens(keeper: NotesBudget) -> int:
    return keeper.max_tokens + _STEP_TOKENS


def _unread_text(unread: Sequence[int]) -> str:
    shown = ", ".join(str(index + 1) for index in unread[:_MAX_UNREAD_SHOWN])
    more = len(unread) - _MAX_UNREAD_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown or "none"


async def take_step(
    keeper: NotesBudget, index: int, notes: Notes, actions: Sequence[Action], unread: Sequence[int]
) -> Step | CallFailed:
    """Ask for one action. An impossible one is repaired once, and then a failure like unreadable output."""

    def read(completion: Completion) -> Step:
        return _read_step(keeper.run, keeper.run.chunks[index], parse_fields(completion), actions)

    return await complete_parsed(step_call(keeper, index, notes, actions, unread), read, keeper.run.meter)


def _read_step(run: Run, chunk: Chunk, parsed: ParsedFields, actions: Sequence[Action]) -> Step:
    name = parsed.text("action")
    if name not in actions:
        raise MalformedOutput(f"The action {name!r} is not possible; possible are {', '.join(actions)}.")
    action = Action(name)
    notes, query = parsed.text("notes"), cut_text(parsed.text("query"), QUERY_TOKENS, run.tokenizer)
    answer = parsed.text("answer") if action is Action.ANSWER else ""
    letters = run.request.letters
    needed = {Action.APPEND: notes, Action.UPDATE: notes, Action.RETRIEVE: query, Action.ANSWER: answer}
    if not needed.get(action, "nothing"):
        raise MalformedOutput(f"The action {name!r} comes without what it needs.")
    if action is Action.ANSWER and letters and answer not in letters:
        raise MalformedOutput("The answer is none of the options.")
    part = parsed.number("part") or 0
    target = part - 1 if 1 <= part <= len(run.chunks) and part - 1 != chunk.index else None
    named = point_to_sentences(run.document, chunk, parsed.numbers("sentences"))
    return Step(
        action=action,
        evidence=relocate_to_answer(named, run.document, [chunk], answer or notes, hint=""),
        reason=parsed.text("reason"),
        query=query,
        target=target,
        notes=notes,
        answer=answer,
        confidence=parsed.confidence(),
    )
