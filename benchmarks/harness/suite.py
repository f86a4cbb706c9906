"""A suite, and the bench that it is handed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from benchmarks.data.items import BenchDocument, BenchItem
from benchmarks.data.question_set import MIX, make_documents
from benchmarks.harness.results import ResultsFile, Row
from benchmarks.systems.model import BenchModel, Served
from pipeline.llm.tokenizer import Tokenizer

Way = TypeVar("Way")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Sizes and choices of a run; part of its results' header."""

    model: str
    quick: bool = False
    seed: int = 7
    documents: int = 4
    tokens: int = 24_000
    """Per document, approximately."""
    questions: int = 12
    """Per document; of `infinitebench` per task; of `longcontext` how many are measured."""
    rounds: int = 7
    prompts: int = 64
    """Per round of `saturation`; of `load`: chats of each length per condition and round."""
    computed: bool = False
    """Of `ablation`: make every call, so that seconds mean something, instead of sharing calls between variants."""
    chunk_tokens: int | None = None
    variants: tuple[str, ...] = ()
    """Of `ask` and `ablation`; of `longcontext` the ways; empty for all."""
    strategies: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Of questions, in turn; empty for the suite's own mix."""
    tasks: tuple[str, ...] = ()
    """Of `infinitebench`; empty for those that can be generated or whose files are there."""
    data: str = ""
    """Folder with released files of `infinitebench`; of `scale` the results file that has a replica's speed."""
    lengths: tuple[int, ...] = (8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_280_000)
    """Of `needle` and `longcontext`: tokens per document, approximately."""
    depths: tuple[int, ...] = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)
    """Of `needle`: percent of the document before the first needle."""
    needles: int = 1
    repeats: int = 1
    """Of `needle`: documents per cell; of `gateway`: how often all of it is measured."""
    languages: tuple[str, ...] = ("en", "en", "en", "zh")

    def settings(self) -> dict[str, Any]:
        """As they come back from a results file. A folder is left out: rows name their file by its hash."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("model", "data")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


class Serve(Protocol):
    """Loads the model and ends it with the block."""

    def __call__(self, kv_cache_bytes: int | None = None) -> AbstractAsyncContextManager[Served]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Handed to a suite."""

    options: Options
    results: ResultsFile
    serve: Serve
    tokenizer: Callable[[], Tokenizer]
    say: Callable[[str], None]
    model: BenchModel

    def documents(self, kinds: tuple[str, ...] = MIX) -> list[BenchDocument]:
        """The question set of the options; `kinds` where they name none."""
        o = self.options
        return make_documents(o.seed, o.documents, o.tokens, o.questions, o.languages, o.kinds or kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One kind of measurement."""

    purpose: str
    run: Callable[[Bench], Coroutine[Any, Any, None]]
    report: Callable[[Row, Sequence[Row], Sequence[str]], list[str]]
    """From header, scored rows and the keys that failed to lines for people, recommended settings last."""
    picture: Callable[[Row, Sequence[Row], Sequence[str]], str]
    """From the same to an SVG."""
    scripted: bool = False
    """It measures what is around a model, with the scripted one only."""
    quick: Options
    """Sizes with which it ends within three minutes on a model of 135M and two cores; the model is ignored."""


def take_turns(ways: Sequence[Way], number: int) -> list[Way]:
    """All of them, the one first whose turn it is at question `number`: what comes later finds the cache warm."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]


def task_name(document: BenchDocument, item: BenchItem | None = None) -> str:
    """The task of an item, else the one whose prompts are in the document's language."""
    if item is not None and item.kind == "aggregation":
        return "aggregation"
    return "question_answering_zh" if document.language == "zh" else "question_answering"
