"""The kinds of work: their prompts are Markdown files, one folder each; what a folder lacks, `common` provides.

header.md    before the chunk: role, rules, calibration anchors; the same for every question, so it is cached
gate.md      after the chunk: the one-token relevance question
map.md       after the chunk: what to extract, naming sentences by number
map_quotes.md  the same, copying sentences; of both there is a form without the line that asks for a rationale
known.md     the question together with what another part says, for a second round
support.md   evidence alone: does it state the answer?
compatible.md  two quotes: can both be true?
settle.md    two quotes: which one is to be believed?
collapse.md  several findings into one
reduce.md    the surviving findings into the answer
direct_header.md, direct.md  before and after a document that is read in one call
task.toml    which stages run, how long outputs may be

Folders named after a strategy (`reference`, `longagent`, ...) hold its own prompts, and `notes` what several share.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from pipeline.errors import UnknownName
from pipeline.llm.prompt import PromptTemplate

TASKS = (
    "question_answering",
    "question_answering_zh",
    "multiple_choice",
    "summarization",
    "retrieval",
    "code",
    "aggregation",
)

_SLOTS = {
    "header": frozenset[str](),
    "gate": frozenset({"question"}),
    "map": frozenset({"question"}),
    "map_quotes": frozenset({"question"}),
    "known": frozenset({"question", "added"}),
    "support": frozenset({"evidence", "question"}),
    "compatible": frozenset({"question", "one", "other"}),
    "settle": frozenset({"question", "one", "other"}),
    "collapse": frozenset({"findings", "question"}),
    "reduce": frozenset({"findings", "question"}),
    "direct_header": frozenset[str](),
    "direct": frozenset({"question"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Prompts and output sizes of one kind of work."""

    name: str
    header: PromptTemplate
    gate: PromptTemplate
    map: PromptTemplate
    map_quotes: PromptTemplate
    map_brief: PromptTemplate
    """`map` and `map_quotes` of `without_rationale`."""
    map_quotes_brief: PromptTemplate
    known: PromptTemplate
    support: PromptTemplate
    compatible: PromptTemplate
    settle: PromptTemplate
    collapse: PromptTemplate
    reduce: PromptTemplate
    direct_header: PromptTemplate
    direct: PromptTemplate
    description: str
    gated: bool
    """False where every chunk matters: summaries, aggregation."""
    supported: bool
    """Whether a finding's evidence can be asked to state the answer by itself."""
    may_abstain: bool
    """Whether a map output may say that the chunk holds nothing. Small models offered that always take it, so where
    gate and support check decide what is relevant they are made to name the closest sentences instead."""
    free_text: bool
    """True if the answer is prose: summaries."""
    decisive: bool
    """Whether one finding can be the whole answer. False where all are put together: summaries, aggregation."""
    map_fields: tuple[str, ...]
    """Fields of a map output after its evidence, in the order they are generated."""
    reduce_fields: tuple[str, ...]
    map_output_tokens: int
    collapse_output_tokens: int
    reduce_output_tokens: int
    yes: str
    no: str
    compatible_nats: float
    """Log-odds, both orders added, from which on two quotes count as parts of one answer rather than as rivals."""
    language_rule: str
    """Ends a strategy's own prompt, which is English, where the answer is to be in another language."""

    def without_rationale(self) -> Task:
        """The same task, whose findings are evidence, answer and confidence alone."""
        fields = tuple(name for name in self.map_fields if name != "rationale")
        return replace(self, map=self.map_brief, map_quotes=self.map_quotes_brief, map_fields=fields)


@lru_cache
def load_task(name: str) -> Task:
    """Read a task's folder. Raises UnknownName with the known names; a template with wrong slots is our fault."""
    if name not in TASKS:
        raise UnknownName(f"No task {name!r}; the tasks are {', '.join(TASKS)}.")
    settings: dict[str, Any] = tomllib.loads(_read("common", "task.toml")) | tomllib.loads(_read(name, "task.toml"))
    for fields in ("map_fields", "reduce_fields"):
        settings[fields] = tuple(settings[fields])
    templates: dict[str, Any] = {}
    for stage, slots in _SLOTS.items():
        template = PromptTemplate.parse(f"{name}/{stage}", _read(name, f"{stage}.md").rstrip("\n"))
        assert template.slots == slots, f"{template.name} has the slots {set(template.slots)}, not {set(slots)}"
        templates[stage] = template
    for stage in ("map", "map_quotes"):
        brief = _without_field("rationale", _read(name, f"{stage}.md")).rstrip("\n")
        templates[f"{stage}_brief"] = PromptTemplate.parse(f"{name}/{stage}_brief", brief)
    return Task(name=name, **templates, **settings)


def task_for(name: str, question: str) -> Task:
    """The task `name`, in the question's language: question answering has Chinese prompts too."""
    wide = sum("\u3400" <= character <= "\u9fff" for character in question)
    chinese = name == "question_answering" and wide * 3 > len(question)
    return load_task("question_answering_zh" if chinese else name)


@cache
def load_prompt(folder: str, name: str, language_rule: str = "") -> PromptTemplate:
    """A prompt that belongs to a strategy, whatever the task; `PromptTemplate.encode` checks its slots."""
    text = (files(__package__) / folder / f"{name}.md").read_text("utf-8").rstrip("\n")
    return PromptTemplate.parse(f"{folder}/{name}", f"{text}\n{language_rule}".rstrip("\n"))


def _without_field(field: str, prompt: str) -> str:
    """Each field of an output is asked for in a line of its own."""
    return "".join(line for line in prompt.splitlines(keepends=True) if not line.startswith(f'- "{field}"'))


def _read(task: str, file_name: str) -> str:
    folder = files(__package__)
    own = folder / task / file_name
    return (own if own.is_file() else folder / "common" / file_name).read_text("utf-8")
