"""Workers that read one chunk after another and hand on their notes (Chain-of-Agents, Algorithm 1).

A unit of notes is bounded: its room is reserved in every worker's prompt, a longer one is condensed once and then cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import NO_CHUNK, SMALLEST_CHUNK_TOKENS, Chunk
from pipeline.errors import StateInvalid
from pipeline.findings.evidence import point_to_sentences
from pipeline.findings.finding import Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling
from pipeline.llm.schema import TEXT, WORDS_PER_TOKEN, number_list, object_schema, parse_fields
from pipeline.mapreduce.map import MAX_QUOTES
from pipeline.run.checkpoints import OpenStep
from pipeline.run.events import Warned
from pipeline.run.run import Run
from pipeline.strategies.shared.notes import REPAIRS, Notes, NotesBudget, condense_notes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handed:
    """A worker's output. Without text the notes stay as they were."""

    text: str
    sentences: list[int]


def largest_chunk_tokens(keeper: NotesBudget) -> int:
    """What unit, question, instruction and output leave of the context; the paper's Algorithm 2 forgets the unit."""
    empty = _call(keeper, NO_CHUNK, Notes(), parts=9999)
    return keeper.run.resources.budget.room_tokens(
        fixed_tokens=len(empty.prompt.token_ids) + keeper.max_tokens,
        output_tokens=empty.sampling.max_output_tokens,
        min_tokens=SMALLEST_CHUNK_TOKENS,
    )


def worker_call(keeper: NotesBudget, chunk: Chunk, unit: Notes) -> Call:
    return _call(keeper, chunk, unit, parts=max(1, len(keeper.run.chunks)))


def _call(keeper: NotesBudget, chunk: Chunk, unit: Notes, *, parts: int) -> Call:
    run, tokenizer = keeper.run, keeper.run.tokenizer
    template = run.prompt("chain_of_agents", "worker_summary" if run.task.free_text else "worker")
    values = {
        # A chunk's own number is shorter than that of the last one: the budget is made with the latter.
        "part": tokenizer.encode_template(str(chunk.index + 1 if chunk.sentences else parts)),
        "parts": tokenizer.encode_template(str(parts)),
        "unit": keeper.encode(unit.text),
        "question": run.question_ids,
        "words": tokenizer.encode_template(str(int(keeper.max_tokens * WORDS_PER_TOKEN))),
    }
    schema = object_schema(notes=TEXT, sentences=number_list(len(chunk.sentences), MAX_QUOTES))
    # A quarter more than the notes may have, for the other fields and for notes that grow a little too long.
    sampling = Sampling(max_output_tokens=keeper.max_tokens * 5 // 4, json_schema=schema)
    return chunk_call(chunk, template.encode(tokenizer, values), sampling, tokenizer, header=run.task.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What the workers of each path hand on: the state between two workers."""

    paths: tuple[Notes, ...]


class Barrier:
    """Where the paths' units come together into the state before each step; no path waits there for another.

    Only where the step is held they all do.
    """

    def __init__(self, run: Run, paths: int, workers: int) -> None:
        self._run = run
        self._paths = paths
        self._workers = workers
        self._steps: dict[int, OpenStep] = {}
        self._came: dict[int, dict[int, Notes]] = {}
        self._settled: dict[int, asyncio.Future[Units]] = {}

    async def reach(self, place: int, path: int, unit: Notes) -> Notes:
        """The unit with which `path` goes on to its worker at `place`, or to the manager after the last."""
        if place not in self._steps:
            self._steps[place] = self._run.steps.open("worker" if place < self._workers else "manager")
            self._came[place] = {}
            self._settled[place] = asyncio.get_running_loop().create_future()
        step, came, settled = self._steps[place], self._came[place], self._settled[place]
        came[path] = unit
        if len(came) == self._paths:
            units = self._run.steps.close(step, Units(paths=tuple(came[each] for each in sorted(came))))
            if len(units.paths) != self._paths:
                raise StateInvalid(f"the state.paths: {self._paths} are expected, there are {len(units.paths)}.")
            settled.set_result(units)
        return (await settled).paths[path] if step.held else unit


async def follow_path(keeper: NotesBudget, path: int, order: Sequence[int], meeting: Barrier) -> Notes:
    """Return the last unit. A worker that fails passes its predecessor's unit on; its chunk is reported as failed."""
    run, unit = keeper.run, Notes()
    for place, index in enumerate(order):
        unit = await meeting.reach(place, path, unit)
        chunk = run.chunks[index]
        call = run.resources.budget.check_fits(worker_call(keeper, chunk, unit))
        handed = await complete_parsed(call, _read, run.meter, repairs=REPAIRS)
        if isinstance(handed, CallFailed):
            run.account.add_failed(index, handed)
        elif handed.text in ("", unit.text):
            run.account.add_read(index, None)
        else:
            unit = await _next_unit(keeper, chunk, unit, handed)
            run.account.add_read(index, _finding(index, unit))
    return await meeting.reach(len(order), path, unit)


def _read(completion: Completion) -> _Handed:
    parsed = parse_fields(completion)
    return _Handed(text=parsed.text("notes"), sentences=parsed.numbers("sentences"))


async def _next_unit(keeper: NotesBudget, chunk: Chunk, unit: Notes, handed: _Handed) -> Notes:
    run = keeper.run
    text = await condense_notes(handed.text, keeper.max_tokens, run)
    if text != handed.text:
        message = f"The notes handed on by the reader of chunk {chunk.index} were too long and were condensed."
        run.resources.emit(Warned(message=message))
    return unit.rewritten(text, chunk.index, point_to_sentences(run.document, chunk, handed.sentences))


def _finding(index: int, unit: Notes) -> Finding:
    """The unit as an event tells it: every unit of a run can be followed."""
    return Finding(
        chunk_indices=(index,), evidence=unit.evidence[index], rationale="", answer=unit.text, stated_confidence=3
    )
