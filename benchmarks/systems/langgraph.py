"""LangGraph's public map-reduce recipe as its users would write it, turned from summaries into question answering.

    START ─one Send per chunk─▶ write_notes ─▶ collect_notes ─┬─ too long ─▶ collapse_notes ─┐
                                                              └─ fits ─▶ write_answer ─▶ END ◀┘ (once they fit)

Structure, limit and order are the recipe's: maps in parallel, a barrier, greedy groups collapsed one after another,
a last call always, temperature 0. What is ours is the wording, which asks for notes that help to answer a question in
place of a summary; it puts the text first and the question last, as LangChain's question answering chain does, so that
the engine's prefix cache serves the recipe as it serves Longfold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.data.score import ABSENT
from pipeline.strategies.shared.grouping import greedy_groups

TOKEN_MAX = 1000
"""Of the recipe: notes that take more are collapsed. It counts the notes, not the prompt around them."""
RECURSION_LIMIT = 10
"""Of the recipe: supersteps, of which a collapse pass is one."""

_MAP = (
    "Here is a part of a longer document.\n\n{text}\n\nQuestion: {question}\n"
    "Write down in one to three sentences what this part says that helps to answer the question, with names and "
    "numbers as they stand. If nothing in it helps, write: Nothing."
)
_COLLAPSE = (
    "Here are notes on parts of a longer document.\n\n{text}\n\nQuestion: {question}\n"
    "Merge the notes into one, and keep everything that helps to answer the question, with names and numbers as they "
    "stand."
)
_ANSWER = (
    "Here are notes on all parts of a document.\n\n{text}\n\nQuestion: {question}\n"
    f"Answer the question from the notes in as few words as possible. If they do not tell, write: {ABSENT}"
)


class _State(TypedDict):
    chunks: Sequence[str]
    notes: Annotated[list[str], operator.add]
    collapsed: list[str]
    answer: str


class _Part(TypedDict):
    chunk: str


def chat_model(base_url: str, model: str, *, output_tokens: int, call_s: float) -> BaseChatModel:
    """The recipe's client, with its own retries."""
    return ChatOpenAI(
        model=model,
        base_url=base_url,
        api_key="none",
        temperature=0,
        max_completion_tokens=output_tokens,
        timeout=call_s,
    )


async def ask_recipe(
    model: BaseChatModel,
    chunks: Sequence[str],
    question: str,
    count_tokens: Callable[[str], int],
    *,
    max_concurrency: int,
) -> str:
    """The answer's text. Raises what the client raises, and GraphRecursionError if notes do not shrink."""
    config = {"recursion_limit": RECURSION_LIMIT, "max_concurrency": max_concurrency}
    ended: dict[str, Any] = await _graph(model, question, count_tokens).ainvoke({"chunks": chunks}, config)
    return str(ended["answer"])


def _graph(model: BaseChatModel, question: str, count_tokens: Callable[[str], int]) -> Any:
    async def complete(prompt: str, text: str) -> str:
        said = await model.ainvoke(prompt.format(text=text, question=question))
        return str(said.content)

    async def write_notes(part: _Part) -> dict[str, Any]:
        return {"notes": [await complete(_MAP, part["chunk"])]}

    def collect_notes(state: _State) -> dict[str, Any]:
        return {"collapsed": state["notes"]}

    async def collapse_notes(state: _State) -> dict[str, Any]:
        notes = state["collapsed"]
        groups = greedy_groups([count_tokens(note) for note in notes], TOKEN_MAX)
        merged = [await complete(_COLLAPSE, _joined([notes[place] for place in group])) for group in groups]
        return {"collapsed": merged}

    async def write_answer(state: _State) -> dict[str, Any]:
        return {"answer": await complete(_ANSWER, _joined(state["collapsed"]))}

    def next_step(state: _State) -> str:
        tokens = sum(count_tokens(note) for note in state["collapsed"])
        return "collapse_notes" if tokens > TOKEN_MAX else "write_answer"

    graph = StateGraph(_State)
    for node in (write_notes, collect_notes, collapse_notes, write_answer):
        graph.add_node(node.__name__, node)
    graph.add_conditional_edges(
        START, lambda state: [Send("write_notes", {"chunk": chunk}) for chunk in state["chunks"]], ["write_notes"]
    )
    graph.add_edge("write_notes", "collect_notes")
    for node_name in ("collect_notes", "collapse_notes"):
        graph.add_conditional_edges(node_name, next_step, ["collapse_notes", "write_answer"])
    graph.add_edge("write_answer", END)
    return graph.compile()


def _joined(notes: Sequence[str]) -> str:
    return "\n\n".join(notes)
