"""The leader of LongAgent (arXiv 2402.11550): knows the question, never sees the document, chooses what comes next.

Its prompts hold the question, its own instructions and the members' answers; nothing else ever gets in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.ask_members import REPAIRS, Team
from pipeline.collapse_findings import MOST_NAMED
from pipeline.complete_parsed import complete_one
from pipeline.errors import MalformedOutput
from pipeline.events import Warned
from pipeline.finding import Finding
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.prompt import chat_prompt
from pipeline.running_notes import condense_notes, condense_room_tokens, cut_text
from pipeline.structured_output import TEXT, Schema, number_list, object_schema, one_of, parse_fields
from pipeline.tasks import load_prompt
from pipeline.words import answer_key

MOST_ROUNDS = 3
"""The paper has no cap; its examples take two to four rounds."""
_LEAST_ANSWERS_TOKENS = 256
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
    said: dict[int, Finding]
    """By chunk index; members that found nothing are not in it. A resolved conflict takes answers out."""
    pairs_asked: set[tuple[int, int]] = field(default_factory=set)


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


async def first_instruction(team: Team) -> str:
    """If the leader fails, the question itself is the instruction."""
    return await _instruct(team, _instruct_call(team, "leader_start", {})) or team.request.question


async def rephrase(team: Team, rounds: Sequence[Round]) -> str:
    """Another instruction after nobody found anything; empty if the leader has none."""
    call = _instruct_call(team, "leader_rephrase", {"history": _history(team, rounds)})
    instruction = await _instruct(team, call)
    return "" if is_repeated(instruction, rounds) else instruction


def is_repeated(instruction: str, rounds: Sequence[Round]) -> bool:
    """The members would say again what they said."""
    return answer_key(instruction) in {answer_key(round_.instruction) for round_ in rounds}


async def decide(team: Team, rounds: Sequence[Round], allowed: Sequence[Action]) -> Decision | CallFailed:
    """Ask the leader for one of the allowed actions, complete with what it needs."""

    def read(completion: Completion) -> Decision:
        parsed = parse_fields(completion)
        decision = Decision(
            action=_allowed(parsed.text("action"), allowed),
            members=tuple(sorted({n - 1 for n in parsed.numbers("members") if 1 <= n <= len(team.chunks)})),
            reason=parsed.text("reason"),
            instruction=parsed.text("instruction"),
            answer=parsed.text("answer"),
        )
        if decision.action is Action.NEW_STATE and not decision.instruction:
            raise MalformedOutput("The leader asks for another round without an instruction.")
        if decision.action is Action.ANSWER and team.request.choices and decision.answer not in _letters(team):
            raise MalformedOutput("The leader's answer is none of the options.")
        return decision

    answers = await _answers(team, rounds)
    ids = team.resources.tokenizer.encode_content(answers)[: answers_room_tokens(team)]
    return await complete_one(_decide_call(team, rounds, ids, allowed), read, team.account.meter, repairs=REPAIRS)


def _allowed(name: str, allowed: Sequence[Action]) -> Action:
    if name not in allowed:
        raise MalformedOutput(f"The leader chose {name!r}; possible are {', '.join(allowed)}.")
    return Action(name)


def _letters(team: Team) -> list[str]:
    return [*team.request.letters, ""]


def answers_room_tokens(team: Team) -> int:
    """What the members' answers of one round may take; ContextTooSmall if that is too little to lead by."""
    call = _decide_call(team, (), (), tuple(Action))
    history = MOST_ROUNDS * (_round_tokens(team) + team.instruction_tokens)
    return team.resources.budget.room_tokens(
        fixed_tokens=len(call.prompt.token_ids) + history,
        output_tokens=call.sampling.max_output_tokens,
        at_least=_LEAST_ANSWERS_TOKENS,
    )


def most_condensing_calls(team: Team) -> int:
    """Calls that shorten one round's answers at most."""
    line, room = team.task.map_output_tokens + 64, answers_room_tokens(team)
    if len(team.chunks) * line <= room:
        return 0
    return -(-len(team.chunks) * line // max(1, _batch_tokens(team, room) - line))


async def _answers(team: Team, rounds: Sequence[Round]) -> str:
    """The last round's answers within their room: one line per different answer, then condensed batch by batch."""
    tokenizer, room = team.resources.tokenizer, answers_room_tokens(team)
    lines = [_line(team, voice) for voice in group_voices(rounds[-1].said)]
    silent = len(team.chunks) - len(rounds[-1].said)
    whole = "\n".join([*lines, f"{silent} members have no answer."])
    if tokenizer.count(whole) <= room:
        return whole
    team.resources.emit(Warned(message="The members' answers are too long for the leader and are condensed."))
    batches = _batches(team, lines, _batch_tokens(team, room))
    share = room // max(2, len(batches))
    shorter = [await condense_notes(b, share, team.question_ids, team.account.meter, team.resources) for b in batches]
    return "\n".join(shorter)


def _batch_tokens(team: Team, room: int) -> int:
    return condense_room_tokens(room // 2, team.question_ids, team.resources)


def _batches(team: Team, lines: Sequence[str], most_tokens: int) -> list[str]:
    batches: list[list[str]] = [[]]
    tokens = 0
    for line in lines:
        size = team.resources.tokenizer.count(line) + 2
        if batches[-1] and tokens + size > most_tokens:
            batches.append([])
            tokens = 0
        batches[-1].append(line)
        tokens += size
    return ["\n".join(batch) for batch in batches]


def _line(team: Team, voice: Voice) -> str:
    numbers = ", ".join(str(member + 1) for member in voice.members[:_NAMED_IN_A_LINE])
    more = len(voice.members) - _NAMED_IN_A_LINE
    who = f"Member {numbers}{f' and {more} more' if more > 0 else ''}"
    return f"{who}: {cut_text(voice.finding.answer, team.task.map_output_tokens, team.resources.tokenizer)}"


def _history(team: Team, rounds: Sequence[Round]) -> Sequence[int]:
    """All instructions, and what came back in earlier rounds; the last round's answers have a place of their own."""
    tokenizer = team.resources.tokenizer
    lines: list[str] = []
    for number, round_ in enumerate(rounds, start=1):
        lines.append(f"{number}. {cut_text(round_.instruction, team.instruction_tokens - 8, tokenizer)}")
        if number < len(rounds):
            said = "\n".join(_line(team, voice) for voice in group_voices(round_.said)) or "nothing was found"
            lines.append(cut_text(said, _round_tokens(team) - 8, tokenizer))
    return tokenizer.encode_content("\n".join(lines))[: MOST_ROUNDS * (_round_tokens(team) + team.instruction_tokens)]


def _round_tokens(team: Team) -> int:
    """Of an earlier round's answers in the leader's prompt."""
    return team.resources.budget.context_tokens // 32


def _decide_call(team: Team, rounds: Sequence[Round], answers: Sequence[int], allowed: Sequence[Action]) -> Call:
    tokenizer = team.resources.tokenizer
    values = {
        "history": _history(team, rounds),
        "answers": answers,
        "actions": tokenizer.encode_template(", ".join(allowed)),
    }
    fields: dict[str, Schema] = {
        "reason": TEXT,
        "members": number_list(max(1, len(team.chunks)), MOST_NAMED),
        "action": one_of([action.value for action in allowed]),
        "instruction": TEXT,
        "answer": team.answer_schema(),
    }
    if Action.NEW_STATE not in allowed:
        del fields["instruction"]
    return _leader_call(team, "leader_next", values, object_schema(**fields))


def _instruct_call(team: Team, prompt: str, values: dict[str, Sequence[int]]) -> Call:
    return _leader_call(team, prompt, values, object_schema(instruction=TEXT))


async def _instruct(team: Team, call: Call) -> str:
    result = await complete_one(
        call, lambda completion: parse_fields(completion).text("instruction"), team.account.meter, repairs=REPAIRS
    )
    return "" if isinstance(result, CallFailed) else result


def _leader_call(team: Team, prompt: str, values: dict[str, Sequence[int]], schema: str) -> Call:
    tokenizer = team.resources.tokenizer
    every = {
        "members": tokenizer.encode_template(str(max(1, len(team.chunks)))),
        "question": team.question_ids,
        **values,
    }
    sampling = Sampling(max_output_tokens=team.task.reduce_output_tokens + team.instruction_tokens, json_schema=schema)
    encoded = chat_prompt(tokenizer, own=[load_prompt("longagent", prompt).encode(tokenizer, every)])
    return team.resources.budget.prove(Call(prompt=encoded, sampling=sampling, stage=Stage.REDUCE))
