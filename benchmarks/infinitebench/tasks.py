"""InfiniteBench's tasks, as published, and how Longfold asks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import UnknownName

LETTERS = "ABCD"
"""Options in InfiniteBench are four."""

ScorerName = Literal["lenient", "upstream"]
SCORERS: tuple[ScorerName, ...] = ("lenient", "upstream")
"""lenient: the scorer of thunlp/LLMxMapReduce at b9feebee9013. upstream: that of OpenBMB/InfiniteBench at 88b3daa6989d.
A number without the name of its scorer says nothing: the same output can score 0 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfTask:
    """One task. The file holds `name`.jsonl."""

    name: str
    label: str
    """As the paper's tables have it."""
    items: int
    """Of the released file."""
    published_tokens: int
    """Mean input, in tokens of cl100k_base; the published "k" is 1024."""
    task: str
    """Longfold's prompts for it."""
    question: str
    """`{input}` is the record's own text, which says what is asked."""


INF_TASKS: Mapping[str, InfTask] = {
    task.name: task
    for task in (
        InfTask(
            name="passkey",
            label="PassKey",
            items=590,
            published_tokens=125_338,
            task="retrieval",
            question="{input}",
        ),
        InfTask(
            name="number_string",
            label="Number",
            items=590,
            published_tokens=125_338,
            task="retrieval",
            question="{input}",
        ),
        InfTask(
            name="kv_retrieval",
            label="KV",
            items=500,
            published_tokens=92_058,
            task="retrieval",
            question="The document is one JSON object. Look up the value of one key, exactly as written. {input}",
        ),
        InfTask(
            name="longbook_sum_eng",
            label="En.Sum",
            items=103,
            published_tokens=175_616,
            task="summarization",
            question="Summarize the book. {input}",
        ),
        InfTask(
            name="longbook_qa_eng",
            label="En.QA",
            items=351,
            published_tokens=197_222,
            task="question_answering",
            question="{input}",
        ),
        InfTask(
            name="longbook_choice_eng",
            label="En.MC",
            items=229,
            published_tokens=188_826,
            task="multiple_choice",
            question="{input}",
        ),
        InfTask(
            name="longdialogue_qa_eng",
            label="En.Dia",
            items=200,
            published_tokens=106_086,
            task="question_answering",
            question="In this dialogue $$MASK$$ stands where one name was taken out. Whose name is it? {input}",
        ),
        InfTask(
            name="longbook_qa_chn",
            label="Zh.QA",
            items=189,
            published_tokens=2_118_246,
            task="question_answering_zh",
            question="{input}",
        ),
        InfTask(
            name="code_debug",
            label="Code.Debug",
            items=394,
            published_tokens=117_453,
            task="code",
            question="One function of this package was broken on purpose. Which one of these is it? Answer with its "
            "letter.\n{input}\n{options}",
        ),
        InfTask(
            name="math_find",
            label="Math.Find",
            items=350,
            published_tokens=90_010,
            task="aggregation",
            question="What is the {target} in the following list? {input}",
        ),
    )
}

GENERATED = ("passkey", "number_string", "kv_retrieval", "math_find")
"""The others are real text and can only be read from released files."""

TARGETS = (
    "largest number",
    "second largest number",
    "third largest number",
    "smallest number",
    "second smallest number",
    "third smallest number",
    "median",
)
"""Of Math.Find: seven times fifty records, in this order."""

AGGREGATES: Mapping[str, tuple[str, ...]] = {
    "Re.Avg": ("passkey", "number_string", "kv_retrieval"),
    "En.Avg": ("longbook_sum_eng", "longbook_qa_eng", "longbook_choice_eng", "longdialogue_qa_eng"),
    "Co.De": ("code_debug",),
    "Ma.Fi": ("math_find",),
    "Avg.": tuple(name for name in INF_TASKS if name != "longbook_qa_chn"),
}
"""Plain means over tasks. En.Avg is of four tasks; figures with three are in circulation."""


def find_task(name: str) -> InfTask:
    if name not in INF_TASKS:
        raise UnknownName(f"No InfiniteBench task {name!r}; the tasks are {', '.join(INF_TASKS)}.")
    return INF_TASKS[name]
