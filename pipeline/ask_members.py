"""Members of LongAgent (arXiv 2402.11550): each sees one chunk and the leader's instruction, and may find nothing.

Where two of them disagree, both chunks are put into one prompt and asked again: who invented one tends to drop it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.chunk_account import ChunkAccount
from pipeline.complete_parsed import complete_one, complete_parsed
from pipeline.document import Document, Span
from pipeline.finding import Evidence, Finding
from pipeline.locate_evidence import find_answer, holds_answer, point_to_sentences
from pipeline.map_chunks import MOST_QUOTES, judge_finding, read_finding
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.prompt import PromptTemplate, chat_prompt
from pipeline.run import Request, Resources
from pipeline.split_document import SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.structured_output import (
    CONFIDENCE,
    FLAG,
    TEXT,
    ParsedFields,
    Schema,
    number_list,
    object_schema,
    one_of,
    parse_fields,
)
from pipeline.tasks import Task, load_prompt

REPAIRS = 2
"""Of an output that cannot be read; then the member counts as having found nothing, and its chunk as not read."""


@dataclass(slots=True, kw_only=True)
class Team:
    """A leader's members and what all of them need."""

    document: Document
    chunks: Sequence[Chunk]
    question_ids: Sequence[int]
    task: Task
    request: Request
    resources: Resources
    account: ChunkAccount

    @property
    def instruction_tokens(self) -> int:
        """Most tokens of an instruction; a longer one is cut."""
        return self.resources.budget.context_tokens // 32

    def answer_schema(self) -> Schema:
        return one_of([*self.request.letters, ""]) if self.request.choices else TEXT


def largest_chunk_tokens(team: Team) -> int:
    """Two chunks must fit one prompt."""
    nothing = Chunk(index=0, span=Span(0, 0), sentences=(), numbered_token_ids=array("I"), affinity="")
    call = _merge_call(team, nothing, nothing, "")
    room = team.resources.budget.room_tokens(
        fixed_tokens=len(call.prompt.token_ids) + team.instruction_tokens,
        output_tokens=call.sampling.max_output_tokens,
        at_least=2 * SMALLEST_CHUNK_TOKENS,
    )
    return room // 2


def member_call(team: Team, chunk: Chunk, instruction: str) -> Call:
    """Header and chunk are the same prefix in every round, and in other strategies."""
    schema = object_schema(
        sentences=number_list(max(1, len(chunk.sentences)), MOST_QUOTES),
        found=FLAG,
        answer=team.answer_schema(),
        confidence=CONFIDENCE,
    )
    values = {"instruction": _instruction_ids(team, instruction)}
    return _call(team, chunk, load_prompt("longagent", "member"), values, schema)


def _merge_call(team: Team, first: Chunk, second: Chunk, instruction: str) -> Call:
    schema = object_schema(
        first=number_list(max(1, len(first.sentences)), MOST_QUOTES),
        second=number_list(max(1, len(second.sentences)), MOST_QUOTES),
        found=FLAG,
        answer=team.answer_schema(),
        confidence=CONFIDENCE,
    )
    values = {"second": second.numbered_token_ids, "instruction": _instruction_ids(team, instruction)}
    return _call(team, first, load_prompt("longagent", "merge"), values, schema)


def _call(team: Team, chunk: Chunk, template: PromptTemplate, values: dict[str, Sequence[int]], schema: str) -> Call:
    tokenizer = team.resources.tokenizer
    prompt = chat_prompt(
        tokenizer,
        shared=[team.task.header.encode(tokenizer, {}), chunk.numbered_token_ids],
        own=[template.encode(tokenizer, values)],
    )
    sampling = Sampling(max_output_tokens=team.task.map_output_tokens, json_schema=schema)
    return Call(prompt=prompt, sampling=sampling, stage=Stage.MAP, chunk_index=chunk.index, affinity=chunk.affinity)


def _instruction_ids(team: Team, instruction: str) -> Sequence[int]:
    """A model wrote it, so it is outside text. The options of a choice go with it: a letter means nothing without."""
    tokenizer = team.resources.tokenizer
    ids = tokenizer.encode_content(instruction)[: team.instruction_tokens]
    if team.request.choices:
        ids.extend(tokenizer.encode_template("\n\n"))
        ids.extend(team.question_ids)
    return ids


async def ask_members(team: Team, instruction: str) -> dict[int, Finding]:
    """Ask all at once; return what those said who found something, by chunk index."""
    said: dict[int, Finding] = {}

    def read(place: int, completion: Completion) -> None:
        finding = _read(team, team.chunks[place], completion, instruction)
        if finding is not None:
            said[place] = finding
        team.account.add_read(place, finding)

    prove = team.resources.budget.prove
    calls = [prove(member_call(team, chunk, instruction)) for chunk in team.chunks]
    outcomes = await complete_parsed(calls, read, team.account.meter, repairs=REPAIRS)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, CallFailed):
            team.account.add_failed(index, outcome)
    return dict(sorted(said.items()))


def _read(team: Team, chunk: Chunk, completion: Completion, instruction: str) -> Finding | None:
    if not _is_found(parse_fields(completion)):
        return None
    finding = read_finding(completion, chunk, team.document, instruction, None)
    return judge_finding(finding, None, team.resources.calibration)


def _is_found(parsed: ParsedFields) -> bool:
    """Refusing is a field of its own, never a phrase to be searched for; without the field the answer decides."""
    return bool(parsed.text("answer")) and parsed.flag("found", missing=True)


async def merge_members(team: Team, pair: tuple[int, int], instruction: str) -> Finding | CallFailed | None:
    """Ask again with both chunks in one prompt; None if together they find nothing."""
    first, second = (team.chunks[index] for index in pair)

    def read(completion: Completion) -> Finding | None:
        parsed = parse_fields(completion)
        if not _is_found(parsed):
            return None
        finding = Finding(
            chunk_indices=tuple(sorted(pair)),
            evidence=_pair_evidence(team, first, second, parsed, instruction),
            rationale="",
            answer=parsed.text("answer"),
            stated_confidence=parsed.confidence(),
            truncated=parsed.truncated,
        )
        return judge_finding(finding, None, team.resources.calibration)

    call = team.resources.budget.prove(_merge_call(team, first, second, instruction))
    return await complete_one(call, read, team.account.meter, repairs=REPAIRS)


def _pair_evidence(team: Team, first: Chunk, second: Chunk, parsed: ParsedFields, hint: str) -> tuple[Evidence, ...]:
    """What was named; if none of it holds the answer but another sentence does, that one instead."""
    answer = parsed.text("answer")
    named = point_to_sentences(team.document, first, parsed.numbers("first"))
    named += point_to_sentences(team.document, second, parsed.numbers("second"))
    if any(holds_answer(evidence, answer) for evidence in named):
        return named
    holders = [find_answer(team.document, chunk, answer, hint) for chunk in (first, second)]
    return tuple(holder for holder in holders if holder is not None) or named
