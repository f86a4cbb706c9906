"""How many calls a driver makes per second of its thread: whole questions, on a model that costs nothing.

    python -m benchmarks.systems.driver_rate [TOKENS]

Prompts are built, completions parsed, events counted, calls journaled; no Ray (`ray_share` has its part) and no engine.
One pass for the split and the journal's file, then the median of several questions. Words are scored in a thread of
their own, which is not counted.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.data.haystack import draw_english
from benchmarks.systems.model import BenchModel
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.front_door import ask
from pipeline.llm.model import Call, Completion, Usage
from pipeline.run.request import Request
from pipeline.run.state import RunState
from serving.settings import Settings

CHUNK_TOKENS = 2_000
_BENCH = BenchModel(opened=None, settings=Settings())
_ROUNDS = 5
_FIELDS = {"sentences": [1], "rationale": "", "answer": "seven", "confidence": 3}
_USAGE = Usage(calls=1, prompt_tokens=CHUNK_TOKENS, output_tokens=8)
_NO = Completion(text="", finish_reason="stop", usage=_USAGE, choice_logprobs=(-3.0, -0.1))
_FINDING = Completion(text=json.dumps(_FIELDS), finish_reason="stop", usage=_USAGE)


class _Model:
    """Says at once that no chunk is relevant, so that a few are mapped and the others are gated only."""

    calls = 0

    async def complete(self, call: Call) -> Completion:
        self.calls += 1
        await asyncio.sleep(0)
        return _NO if call.sampling.choices else _FINDING


def calls_per_s(document: Document, journal: Journal | None, name: str) -> float:
    """Of one question that was not asked before."""
    model = _Model()
    inner = InlineDispatcher(model)
    dispatcher = inner if journal is None else JournaledDispatcher(inner, journal, "model")
    resources = replace(_BENCH.resources(dispatcher), chunk_tokens=CHUNK_TOKENS, emit=RunState().apply)
    started = time.thread_time()
    asyncio.run(ask(document, Request(question=f"Who paid for {name}?", strategy="mapreduce"), resources))
    return model.calls / (time.thread_time() - started)


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    pieces = draw_english(random.Random(1), tokens, [])
    document = Document.from_text("\n\n".join(piece.text() for piece in pieces))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.sqlite")
        for label, where in (("without a journal", None), ("with a journal", journal)):
            calls_per_s(document, where, "the split")
            rates = [calls_per_s(document, where, f"harbour {number}") for number in range(_ROUNDS)]
            print(
                f"{label}: {median(rates):,.0f} calls/s (median of {_ROUNDS}, {min(rates):,.0f} to {max(rates):,.0f})"
            )
        journal.close()


if __name__ == "__main__":
    main()
