"""Workers that read one chunk after another and hand on their notes (Chain-of-Agents, Algorithm 1).

A unit of notes is bounded: its room is reserved in every worker's prompt, a longer one is condensed once and then cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.chunk_account import ChunkAccount
from pipeline.complete_parsed import complete_one
from pipeline.document import Document, Span
from pipeline.events import Warned
from pipeline.finding import Finding
from pipeline.locate_evidence import point_to_sentences
from pipeline.map_chunks import MOST_QUOTES
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.prompt import chat_prompt
from pipeline.running_notes import REPAIRS, WORDS_PER_TOKEN, NoteKeeper, Notes, condense_notes
from pipeline.split_document import SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.structured_output import FLAG, TEXT, number_list, object_schema, parse_fields
from pipeline.tasks import load_prompt

_NO_CHUNK = Chunk(index=0, span=Span(0, 0), sentences=(), numbered_token_ids=array("I"), affinity="")


@dataclass(slots=True, kw_only=True)
class NoteChain:
    """What all paths of one run share."""

    document: Document
    chunks: Sequence[Chunk]
    keeper: NoteKeeper
    account: ChunkAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handed:
    """A worker's output. Without text the notes stay as they were."""

    text: str
    sentences: list[int] = field(default_factory=list)


def largest_chunk_tokens(keeper: NoteKeeper) -> int:
    """What unit, question, instruction and output leave of the context; the paper's Algorithm 2 forgets the unit."""
    chain_less = _call(keeper, _NO_CHUNK, Notes(), parts=9999)
    return keeper.resources.budget.room_tokens(
        fixed_tokens=len(chain_less.prompt.token_ids) + keeper.most_tokens,
        output_tokens=chain_less.sampling.max_output_tokens,
        at_least=SMALLEST_CHUNK_TOKENS,
    )


def worker_call(chain: NoteChain, chunk: Chunk | None, unit: Notes) -> Call:
    """Header and chunk are the same prefix as in other strategies; None stands for a chunk without text."""
    return _call(chain.keeper, chunk or _NO_CHUNK, unit, parts=max(1, len(chain.chunks)))


def _call(keeper: NoteKeeper, chunk: Chunk, unit: Notes, *, parts: int) -> Call:
    tokenizer, task = keeper.resources.tokenizer, keeper.task
    template = load_prompt("chain_of_agents", "worker_summary" if task.free_text else "worker")
    values = {
        # A chunk's own number is shorter than that of the last one: the budget is made with the latter.
        "part": tokenizer.encode_template(str(chunk.index + 1 if chunk.sentences else parts)),
        "parts": tokenizer.encode_template(str(parts)),
        "unit": keeper.encode(unit.text),
        "question": keeper.question_ids,
        "words": tokenizer.encode_template(str(int(keeper.most_tokens * WORDS_PER_TOKEN))),
    }
    schema = object_schema(sentences=number_list(max(1, len(chunk.sentences)), MOST_QUOTES), unchanged=FLAG, notes=TEXT)
    prompt = chat_prompt(
        tokenizer,
        shared=[task.header.encode(tokenizer, {}), chunk.numbered_token_ids],
        own=[template.encode(tokenizer, values)],
    )
    return Call(
        prompt=prompt,
        # A quarter more than the notes may have, for the other fields and for notes that grow a little too long.
        sampling=Sampling(max_output_tokens=keeper.most_tokens * 5 // 4, json_schema=schema),
        stage=Stage.MAP,
        chunk_index=chunk.index,
        affinity=chunk.affinity,
    )


async def follow_path(chain: NoteChain, order: Sequence[int]) -> Notes:
    """Return the last unit. A worker that fails passes its predecessor's unit on; its chunk is reported as failed."""
    unit = Notes()
    for index in order:
        chunk = chain.chunks[index]
        call = chain.keeper.resources.budget.prove(worker_call(chain, chunk, unit))
        handed = await complete_one(call, _read, chain.account.meter, repairs=REPAIRS)
        if isinstance(handed, CallFailed):
            chain.account.add_failed(index, handed)
        elif not handed.text:
            chain.account.add_read(index, None)
        else:
            unit = await _next_unit(chain, chunk, unit, handed)
            chain.account.add_read(index, _finding(index, unit))
    return unit


def _read(completion: Completion) -> _Handed:
    parsed = parse_fields(completion)
    if parsed.flag("unchanged"):
        return _Handed(text="")
    return _Handed(text=parsed.text("notes"), sentences=parsed.numbers("sentences"))


async def _next_unit(chain: NoteChain, chunk: Chunk, unit: Notes, handed: _Handed) -> Notes:
    keeper = chain.keeper
    text = await condense_notes(
        handed.text, keeper.most_tokens, keeper.question_ids, chain.account.meter, keeper.resources
    )
    if text != handed.text:
        message = f"The notes handed on by the reader of chunk {chunk.index} were too long and were condensed."
        keeper.resources.emit(Warned(message=message))
    return unit.rewritten(text, chunk.index, point_to_sentences(chain.document, chunk, handed.sentences))


def _finding(index: int, unit: Notes) -> Finding:
    """The unit as an event tells it: every unit of a run can be followed."""
    return Finding(
        chunk_indices=(index,), evidence=unit.evidence[index], rationale="", answer=unit.text, stated_confidence=3
    )
