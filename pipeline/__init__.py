"""From a document and a question to an answer with evidence, on any engine that completes a prompt.

    answer = ask_sync(Document.from_text(text), Request(question="Who paid?"), resources)

`Resources` name the model: its tokenizer, context and dispatcher. To read the code, begin with `mapreduce/strategy.py`,
the main path, which names the modules it goes through. The folders, in the order of the flow:

    documents/        files to one Document
    llm/, tasks/      how to speak to a model, and the prompts as Markdown
    chunks/           Document to numbered chunks
    findings/         what chunks say, and where
    dispatch/         calls out, outcomes back
    run/              one strategy on one question: request, plan, events, state, coverage, checkpoints
    mapreduce/        the main path
    strategies/       every other way to an answer
    front_door.py     plan, ask, ask_sync
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.documents.document import Document
    from pipeline.findings.answer import Answer
    from pipeline.front_door import ask, ask_sync, plan
    from pipeline.run.plan import Plan
    from pipeline.run.request import Limits, Request
    from pipeline.run.strategy import Resources, Strategy

__all__ = [
    "Answer",
    "Document",
    "Limits",
    "Plan",
    "Request",
    "Resources",
    "Strategy",
    "ask",
    "ask_sync",
    "plan",
]

_HOME = {
    "Answer": "findings.answer",
    "Document": "documents.document",
    "Limits": "run.request",
    "Plan": "run.plan",
    "Request": "run.request",
    "Resources": "run.strategy",
    "Strategy": "run.strategy",
    "ask": "front_door",
    "ask_sync": "front_door",
    "plan": "front_door",
}


def __getattr__(name: str) -> Any:
    """Found when first used: all of it takes half a second to import, and a worker of Ray needs a little of it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"pipeline.{_HOME[name]}"), name)
