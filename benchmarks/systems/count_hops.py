"""How far a reader has to jump to follow one chunk to its answer: entries of functions, and hops between files.

    python -m benchmarks.systems.count_hops

A hop is an entry of a function of the product in another file than the entry before it. What is followed is a question
through `pipeline.ask`, with a journal and a model that costs nothing: on one chunk with three calls (gate, map,
support check), and on longer documents for what each further chunk costs that is gated and not kept.
"""

from __future__ import annotations

import asyncio
import dis
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import pipeline
from benchmarks.systems.model import BenchModel
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.findings.confidence import GateSettings
from pipeline.front_door import ask
from pipeline.llm.model import Call, Completion, Usage
from pipeline.run.request import Request
from serving.settings import Settings

_PRODUCT = str(Path(pipeline.__file__).parent)
_SYNTHESIZED = {"<genexpr>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>"}
_FACT = "The warden of the light is Odalys Brand."
_FEW, _MANY = 12, 32
_BENCH = BenchModel(opened=None, settings=Settings())


Result = TypeVar("Result")


def count_hops(work: Callable[[], Result]) -> tuple[Result, int, int, int]:
    """The result of `work`; entries of functions of the product, hops between its files, and how many files."""
    files: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(_PRODUCT)
            and code.co_name not in _SYNTHESIZED
            and frame.f_lasti <= _beginning(code)  # not when a coroutine is resumed
        ):
            files.append(code.co_filename)

    sys.setprofile(watch)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    hops = sum(one != other for one, other in itertools.pairwise(files))
    return result, len(files), hops, len(set(files))


@cache
def _beginning(code: CodeType) -> int:
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME" and one.arg == 0)


class _Model:
    """Says yes of the part that holds the fact, and no of all others."""

    async def complete(self, call: Call) -> Completion:
        says = _FACT in _BENCH.tokenizer.decode(call.prompt.token_ids)
        fields = {"sentences": [1], "rationale": "", "answer": "Odalys Brand", "confidence": 5}
        return Completion(
            text="" if call.sampling.choices else json.dumps(fields),
            finish_reason="stop",
            usage=Usage(calls=1),
            choice_logprobs=((-0.1, -3.0) if says else (-9.0, -0.1)) if call.sampling.choices else (),
        )


def _ask(paragraphs: int, folder: str) -> Callable[[], Answer]:
    """What asks a new question: nothing is in its journal."""
    filler = "The harbour was quiet that morning and the boats lay still. " * 30
    texts = [f"{_FACT} {filler}", *[f"{n}. {filler}" for n in range(1, paragraphs)]]
    document = Document.from_text("\n\n".join(texts))
    journal = Journal(Path(tempfile.mkdtemp(dir=folder)) / "journal.sqlite")
    dispatcher = JournaledDispatcher(InlineDispatcher(_Model()), journal, "scripted")
    gate = GateSettings(enabled=True, keep_margin=2.0, keep_at_least=1, clear_score=2.0)
    resources = replace(_BENCH.resources(dispatcher), chunk_tokens=2_500, gate=gate)
    request = Request(question="Who is the warden of the light?", strategy="mapreduce")
    return lambda: asyncio.run(ask(document, request, resources))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _ask(1, folder)()  # prompts are loaded once
        one, entries, hops, files = count_hops(_ask(1, folder))
        few, few_entries, few_hops, _ = count_hops(_ask(_FEW, folder))
        many, many_entries, many_hops, _ = count_hops(_ask(_MANY, folder))
    calls = sum(usage.calls for usage in one.usage.values())
    print(f"{one.coverage.chunks} chunk, {calls} calls: {entries} entries, {files} files, {hops} hops")
    more = many.coverage.chunks - few.coverage.chunks
    print(
        f"each further chunk, gated and not kept: {(many_entries - few_entries) / more:.1f} entries, "
        f"{(many_hops - few_hops) / more:.1f} hops"
    )


if __name__ == "__main__":
    main()
