"""The leader of LongAgent (arXiv 2402.11550): knows the question, never sees the document, chooses what comes next.

Its prompts hold the question, its own instructions and the members' answers; nothing else ever gets in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.errors import MalformedOutput
from pipeline.findings.finding import ChunkIndex, Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import TEXT, Schema, answer_schema, number_list, object_schema, one_of, parse_fields
from pipeline.mapreduce.collapse import MAX_NAMED
from pipeline.run.events import Warned
from pipeline.run.run import Run
from pipeline.strategies.longagent.members import REPAIRS, instruction_tokens
from pipeline.strategies.shared.grouping import greedy_groups
from pipeline.strategies.shared.notes import condense_notes, condense_room_tokens, cut_text
from pipeline.text import answer_key

MAX_ROUNDS = 3
"""The paper has no cap; its examples take two to four rounds."""
_MIN_ANSWERS_TOKENS = 256
_NAMED_IN_A_LINE = 12


class Action(StrEnum):
    """What the leader may do after a round."""

    NEW_STATE = "NEW_STATE"
    CONFLICT = "CONFLICT"
    ANSWER = "ANSWER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One action with what it needs; `members` are chunk indices."""

    action: Action
    members: tuple[int, ...]
    reason: str
    instruction: str
    answer: str


@dataclass(slots=True, kw_only=True)
class Round:
    """One instruction and what the members say to it."""

    instruction: str
    said: dict[ChunkIndex, Finding]
    """By chunk; members that found nothing are not in it. A resolved conflict takes answers out."""
    pairs_asked: set[tuple[ChunkIndex, ChunkIndex]] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Talk:
    """What leader and members have said so far: the state between two of their turns."""

    instruction: str
    """Of the round that comes next, or that is under way; empty when there is no next."""
    rounds: list[Round] = field(default_factory=list)
    merges_made: int = 0
    """Conflicts read again, in all rounds together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """Members that gave the same answer."""

    members: tuple[int, ...]
    """Chunk indices, ascending."""
    finding: Finding
    """The most probable of theirs."""


def group_voices(said: Mapping[int, Finding]) -> list[Voice]:
    """Answers that are the same but for case, punctuation and articles, in the order of their first member."""
    groups: dict[str, list[int]] = {}
    for index in sorted(said):
        groups.setdefault(answer_key(said[index].answer), []).append(index)
    return [
        Voice(members=tuple(members), finding=max((said[m] for m in members), key=lambda f: f.probability))
        for members in groups.values()
    ]


async def first_instruction(run: Run) -> str:
    """If the leader fails, the question itself is the instruction."""
    return await _instruct(run, _instruct_call(run, "leader_start", {})) or run.request.question


async def rephrase(run: Run, rounds: Sequence[Round]) -> str:
    """Another instruction after nobody found anything; empty if the leader has none."""
    call = _instruct_call(run, "leader_rephrase", {"history": _history(run, rounds)})
    instruction = await _instruct(run, call)
    return "" if is_repeated(instruction, rounds) else instruction


def is_repeated(instruction: str, rounds: Sequence[Round]) -> bool:
    """The members would say again what they said."""
    return answer_key(instruction) in {answer_key(round_.instruction) for round_ in rounds}


async def decide(run: Run, rounds: Sequence[Round], allowed: Sequence[Action]) -> Decision | CallFailed:
    """Ask the leader for one of the allowed actions, complete with what it needs."""

    def read(completion: Completion) -> Decision:
        parsed = parse_fields(completion)
        decision = Decision(
            action=_allowed(parsed.text("action"), allowed),
            members=tuple(sorted({n - 1 for n in parsed.numbers("members") if 1 <= n <= len(run.chunks)})),
            reason=parsed.text("reason"),
            instruction=parsed.text("instruction"),
            answer=parsed.text("answer"),
        )
        if decision.action is Action.NEW_STATE and not decision.instruction:
            raise MalformedOutput("The leader asks for another round without an instruction.")
        if decision.action is Action.ANSWER and run.request.choices and decision.answer not in _letters(run):
            raise MalformedOutput("The leader's answer is none of the options.")
        return decision

    answers = await _answers(run, rounds)
    ids = run.tokenizer.encode_content(answers)[: answers_room_tokens(run)]
    return await complete_parsed(_decide_call(run, rounds, ids, allowed), read, run.meter, repairs=REPAIRS)


def _allowed(name: str, allowed: Sequence[Action]) -> Action:
    if name not in allowed:
        raise MalformedOutput(f"The leader chose {name!r}; possible are {', '.join(allowed)}.")
    return Action(name)


def _letters(run: Run) -> list[str]:
    return [*run.request.letters, ""]


def answers_room_tokens(run: Run) -> int:
    """What the members' answers of one round may take; ContextTooSmall if that is too little to lead by."""
    call = _decide_call(run, (), (), tuple(Action))
    history = MAX_ROUNDS * (_round_tokens(run) + instruction_tokens(run))
    return run.resources.budget.room_tokens(
        fixed_tokens=len(call.prompt.token_ids) + history,
        output_tokens=call.sampling.max_output_tokens,
        min_tokens=_MIN_ANSWERS_TOKENS,
    )


def max_condensing_calls(run: Run) -> int:
    """Calls that shorten one round's answers at most."""
    line, room = run.task.map_output_tokens + 64, answers_room_tokens(run)
    if len(run.chunks) * line <= room:
        return 0
    return -(-len(run.chunks) * line // max(1, _batch_tokens(run, room) - line))


async def _answers(run: Run, rounds: Sequence[Round]) -> str:
    """The last round's answers within their room: one line per different answer, then condensed batch by batch."""
    tokenizer, room = run.tokenizer, answers_room_tokens(run)
    lines = [_line(run, voice) for voice in group_voices(rounds[-1].said)]
    silent = len(run.chunks) - len(rounds[-1].said)
    whole = "\n".join([*lines, f"{silent} members have no answer."])
    if tokenizer.count(whole) <= room:
        return whole
    run.resources.emit(Warned(message="The members' answers are too long for the leader and are condensed."))
    batches = _batches(run, lines, _batch_tokens(run, room))
    share = room // max(2, len(batches))
    shorter = [await condense_notes(batch, share, run) for batch in batches]
    return "\n".join(shorter)


def _batch_tokens(run: Run, room: int) -> int:
    return condense_room_tokens(room // 2, run)


def _batches(run: Run, lines: Sequence[str], max_tokens: int) -> list[str]:
    sizes = [run.tokenizer.count(line) + 2 for line in lines]
    return ["\n".join(lines[place] for place in group) for group in greedy_groups(sizes, max_tokens)]


def _line(run: Run, voice: Voice) -> str:
    numbers = ", ".join(str(member + 1) for member in voice.members[:_NAMED_IN_A_LINE])
    more = len(voice.members) - _NAMED_IN_A_LINE
    who = f"Member {numbers}{f' and {more} more' if more > 0 else ''}"
    return f"{who}: {cut_text(voice.finding.answer, run.task.map_output_tokens, run.tokenizer)}"


def _history(run: Run, rounds: Sequence[Round]) -> Sequence[int]:
    """All instructions, and what came back in earlier rounds; the last round's answers have a place of their own."""
    tokenizer = run.tokenizer
    lines: list[str] = []
    for number, round_ in enumerate(rounds, start=1):
        lines.append(f"{number}. {cut_text(round_.instruction, instruction_tokens(run) - 8, tokenizer)}")
        if number < len(rounds):
            said = "\n".join(_line(run, voice) for voice in group_voices(round_.said)) or "nothing was found"
            lines.append(cut_text(said, _round_tokens(run) - 8, tokenizer))
    return tokenizer.encode_content("\n".join(lines))[: MAX_ROUNDS * (_round_tokens(run) + instruction_tokens(run))]


def _round_tokens(run: Run) -> int:
    """Of an earlier round's answers in the leader's prompt."""
    return run.resources.budget.context_tokens // 32


def _decide_call(run: Run, rounds: Sequence[Round], answers: Sequence[int], allowed: Sequence[Action]) -> Call:
    tokenizer = run.tokenizer
    values = {
        "history": _history(run, rounds),
        "answers": answers,
        "actions": tokenizer.encode_template(", ".join(allowed)),
    }
    fields: dict[str, Schema] = {
        "reason": TEXT,
        "members": number_list(len(run.chunks), MAX_NAMED),
        "action": one_of([action.value for action in allowed]),
        "instruction": TEXT,
        "answer": answer_schema(run.request.letters),
    }
    if Action.NEW_STATE not in allowed:
        del fields["instruction"]
    return _leader_call(run, "leader_next", values, object_schema(**fields))


def _instruct_call(run: Run, prompt: str, values: dict[str, Sequence[int]]) -> Call:
    return _leader_call(run, prompt, values, object_schema(instruction=TEXT))


async def _instruct(run: Run, call: Call) -> str:
    result = await complete_parsed(
        call, lambda completion: parse_fields(completion).text("instruction"), run.meter, repairs=REPAIRS
    )
    return "" if isinstance(result, CallFailed) else result


def _leader_call(run: Run, prompt: str, values: dict[str, Sequence[int]], schema: str) -> Call:
    tokenizer = run.tokenizer
    every = {
        "members": tokenizer.encode_template(str(max(1, len(run.chunks)))),
        "question": run.question_ids,
        **values,
    }
    sampling = Sampling(max_output_tokens=run.task.reduce_output_tokens + instruction_tokens(run), json_schema=schema)
    encoded = chat_prompt(tokenizer, own=[run.prompt("longagent", prompt).encode(tokenizer, every)])
    return run.resources.budget.check_fits(Call(prompt=encoded, sampling=sampling, stage=Stage.REDUCE))
