"""Members of LongAgent (arXiv 2402.11550): each sees one chunk and the leader's instruction, and may find nothing.

Where two of them disagree, both chunks are put into one prompt and asked again: who invented one tends to drop it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import NO_CHUNK, SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.findings.evidence import point_to_sentences, relocate_to_answer
from pipeline.findings.finding import Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling
from pipeline.llm.schema import (
    CONFIDENCE,
    FLAG,
    ParsedFields,
    answer_schema,
    number_list,
    object_schema,
    parse_fields,
)
from pipeline.mapreduce.map import MAX_QUOTES, read_finding
from pipeline.run.run import Run
from pipeline.strategies.shared.map_every_chunk import map_every_chunk

REPAIRS = 2
"""Of an output that cannot be read; then the member counts as having found nothing, and its chunk as not read."""


def instruction_tokens(run: Run) -> int:
    """Most tokens of an instruction; a longer one is cut."""
    return run.resources.budget.context_tokens // 32


def largest_chunk_tokens(run: Run) -> int:
    """Two chunks must fit one prompt."""
    call = _merge_call(run, NO_CHUNK, NO_CHUNK, "")
    room = run.resources.budget.room_tokens(
        fixed_tokens=len(call.prompt.token_ids) + instruction_tokens(run),
        output_tokens=call.sampling.max_output_tokens,
        min_tokens=2 * SMALLEST_CHUNK_TOKENS,
    )
    return room // 2


def member_call(run: Run, chunk: Chunk, instruction: str) -> Call:
    schema = object_schema(
        sentences=number_list(len(chunk.sentences), MAX_QUOTES),
        found=FLAG,
        answer=answer_schema(run.request.letters),
        confidence=CONFIDENCE,
    )
    values = {"instruction": _instruction_ids(run, instruction)}
    return _call(run, chunk, "member", values, schema)


def _merge_call(run: Run, first: Chunk, second: Chunk, instruction: str) -> Call:
    schema = object_schema(
        first=number_list(len(first.sentences), MAX_QUOTES),
        second=number_list(len(second.sentences), MAX_QUOTES),
        found=FLAG,
        answer=answer_schema(run.request.letters),
        confidence=CONFIDENCE,
    )
    values = {"second": second.numbered_token_ids, "instruction": _instruction_ids(run, instruction)}
    return _call(run, first, "merge", values, schema)


def _call(run: Run, chunk: Chunk, prompt: str, values: dict[str, Sequence[int]], schema: str) -> Call:
    own = run.prompt("longagent", prompt).encode(run.tokenizer, values)
    sampling = Sampling(max_output_tokens=run.task.map_output_tokens, json_schema=schema)
    return chunk_call(chunk, own, sampling, run.tokenizer, header=run.task.header)


def _instruction_ids(run: Run, instruction: str) -> Sequence[int]:
    """A model wrote it, so it is untrusted text. The options of a choice go with it: a letter means nothing without."""
    ids = run.tokenizer.encode_content(instruction)[: instruction_tokens(run)]
    if run.request.choices:
        ids.extend(run.tokenizer.encode_template("\n\n"))
        ids.extend(run.question_ids)
    return ids


async def ask_members(run: Run, instruction: str) -> dict[int, Finding]:
    """Ask all at once; return what those said who found something, by chunk index."""

    def read(chunk: Chunk, completion: Completion) -> Finding:
        finding = run.judge(read_finding(completion, chunk, run.document, instruction, None))
        return finding if _is_found(parse_fields(completion)) else replace(finding, answer="")

    return await map_every_chunk(run, lambda chunk: member_call(run, chunk, instruction), read, repairs=REPAIRS)


def _is_found(parsed: ParsedFields) -> bool:
    """Refusing is a field of its own, never a phrase to be searched for; without the field the answer decides."""
    return bool(parsed.text("answer")) and parsed.flag("found", missing=True)


async def merge_members(run: Run, pair: tuple[int, int], instruction: str) -> Finding | CallFailed | None:
    """Ask again with both chunks in one prompt; None if together they find nothing."""
    first, second = (run.chunks[index] for index in pair)

    def read(completion: Completion) -> Finding | None:
        parsed = parse_fields(completion)
        if not _is_found(parsed):
            return None
        named = point_to_sentences(run.document, first, parsed.numbers("first"))
        named += point_to_sentences(run.document, second, parsed.numbers("second"))
        answer = parsed.text("answer")
        finding = Finding(
            chunk_indices=tuple(sorted(pair)),
            evidence=relocate_to_answer(named, run.document, [first, second], answer, instruction),
            rationale="",
            answer=answer,
            stated_confidence=parsed.confidence(),
            truncated=parsed.truncated,
        )
        return run.judge(finding)

    call = run.resources.budget.check_fits(_merge_call(run, first, second, instruction))
    return await complete_parsed(call, read, run.meter, repairs=REPAIRS)
