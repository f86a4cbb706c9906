"""Splitting and encoding: seconds for growing documents, and whether they grow in proportion."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.data.haystack import draw_chinese, draw_english
from benchmarks.harness.progress_bar import show_progress
from benchmarks.harness.results import Row, made_by
from benchmarks.harness.statistics import growth_exponent, spread
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.report.charts import BarPanel, draw_bars, median_bar
from pipeline.chunks.split import encode_sentences, split_document
from pipeline.documents.document import Document
from pipeline.llm.tokenizer import Tokenizer

SIZES_TOKENS = (100_000, 300_000, 1_000_000)
QUICK_SIZES_TOKENS = (30_000, 100_000, 300_000)
CHUNK_TOKENS = 2_000
CHARS_PER_TOKEN = 4.2
WIDE_CHARS_PER_TOKEN = 1.45


async def run(bench: Bench) -> None:
    """Sizes alternate within a round, so that a slow minute of the machine does not look like growth."""
    tokenizer = bench.tokenizer()
    sizes = QUICK_SIZES_TOKENS if bench.options.quick else SIZES_TOKENS
    texts = {f"{shape}/{size}": make(size) for shape, make in SHAPES.items() for size in sizes}
    texts["one 10 MB line/0"] = one_line(10_000_000 / CHARS_PER_TOKEN)[:10_000_000]
    split_document(Document.from_text(texts[f"prose/{sizes[0]}"]), tokenizer, CHUNK_TOKENS)
    timed = [(f"{name}/{number}", text) for number in range(bench.options.rounds) for name, text in texts.items()]
    with show_progress(len(timed), "documents") as advance:
        for key, text in timed:
            if not bench.results.has(key):
                _time_split(bench, tokenizer, key, text)
            advance()


def _time_split(bench: Bench, tokenizer: Tokenizer, key: str, text: str) -> None:
    split_document.cache_clear()
    encode_sentences.cache_clear()
    started = time.perf_counter()
    chunks = split_document(Document.from_text(text), tokenizer, CHUNK_TOKENS)
    seconds = time.perf_counter() - started
    tokens = sum(len(sentence.token_ids) for chunk in chunks for sentence in chunk.sentences)
    bench.results.add(key, shape=key.partition("/")[0], chars=len(text), tokens=tokens, seconds=round(seconds, 4))
    bench.say(f"{key}: {tokens:,} tokens in {seconds:.2f} s")


def prose(tokens: float) -> str:
    pieces = draw_english(random.Random(1), int(tokens * CHARS_PER_TOKEN), [])
    return "\n\n".join(piece.text() for piece in pieces)


def one_line(tokens: float) -> str:
    return " ".join(prose(tokens).split())


def chinese(tokens: float) -> str:
    return "".join(draw_chinese(random.Random(1), int(tokens * WIDE_CHARS_PER_TOKEN)))


SHAPES: dict[str, Callable[[float], str]] = {"prose": prose, "one line": one_line, "chinese line": chinese}


def report(_: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    lines = [f"{'shape':16} {'characters':>12} {'tokens':>10}  seconds"]
    for shape in sorted({row["shape"] for row in rows}):
        own = [row for row in rows if row["shape"] == shape]
        sizes = sorted({row["chars"] for row in own})
        for chars in sizes:
            same = [row for row in own if row["chars"] == chars]
            seconds = spread([row["seconds"] for row in same])
            lines.append(f"{shape:16} {chars:>12,} {same[0]['tokens']:>10,}  {seconds}")
        if len(sizes) > 1:
            medians = [statistics.median(row["seconds"] for row in own if row["chars"] == size) for size in sizes]
            lines.append(f"{'':16} grows with characters to the power {growth_exponent(sizes, medians):.2f}")
    return lines


def picture(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    bars = []
    for shape in sorted({row["shape"] for row in rows}):
        for tokens in sorted({row["tokens"] for row in rows if row["shape"] == shape}):
            same = [row["seconds"] for row in rows if row["shape"] == shape and row["tokens"] == tokens]
            bars.append(median_bar(f"{shape}, {tokens:,}", same, "{:.2f} s"))
    return draw_bars(
        made_by(header), [BarPanel(title="seconds for so many tokens: median, whisker to the longest", bars=bars)]
    )


SUITE = Suite(
    purpose="seconds to split and encode 0.1M, 0.3M and 1M tokens, a single long line, and Chinese",
    run=run,
    report=report,
    picture=picture,
    quick=Options(model="", quick=True, rounds=2),
)
