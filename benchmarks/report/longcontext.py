"""Tables and a plot of native decoding beside Longfold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.harness.results import Row
from benchmarks.report.charts import Line, draw_lines

QUESTIONS = (1, 5, 20)
"""Per document, as in the report."""
_GIB = 1 << 30
_MIB = 1 << 20
_TIMES = (
    f"{'document':>9} {'way':10} {'first':>8} {'answer':>8} {'CPU s':>7} {'2nd answer':>10} {'tokens/s':>9} "
    f"{'5 questions':>13} {'20 questions':>13} {'right':>7}"
)
_MEMORY = (
    f"{'document':>9} {'way':10} {'window':>8} {'peak GiB':>9} {'weights GiB':>12} {'KV by formula':>14} "
    f"{'reserved MiB':>13} {'held at most':>13}"
)


def seconds_for(row: Row, questions: int) -> tuple[float, bool] | None:
    """Seconds for so many questions on one document, and whether all were measured.

    Beyond those that were: the first, and for each further one the mean of the later ones. None if that is unknown.
    """
    seconds = [one["seconds"] for one in row["questions"]]
    if questions <= len(seconds):
        return sum(seconds[:questions]), True
    if len(seconds) < 2:
        return None
    return seconds[0] + (questions - 1) * statistics.fmean(seconds[1:]), False


def tokens_per_s(row: Row) -> float:
    """Of the first question: prompt and output tokens that were computed."""
    first = row["questions"][0]
    computed = first["prompt_tokens"] - first["cached_tokens"] + first["output_tokens"]
    return float(computed / max(0.01, first["seconds"]))


def report_longcontext(_: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    rows = sorted(rows, key=lambda row: row["length"])
    measured = [row for row in rows if "refused" not in row]
    lines = [
        "first: seconds to the first token (native), to the first provisional answer (Longfold; the answer if there",
        "was none); answer: seconds to the whole answer of the first question; CPU s: of the engine's process for it",
        _TIMES,
    ]
    lines += [_time_line(row) for row in measured]
    lines += ["~: not measured: the first question and the mean of the later ones for each further one", "", _MEMORY]
    lines += [_memory_line(row) for row in measured]
    where = "GPU, NVML" if any(row["peak_gpu_bytes"] for row in measured) else "resident memory of the engine's process"
    lines.append(f"peak: {where}, while it answered; KV: MiB; formula: of one sequence as long as the window must be")
    lines += [
        f"{row['side']} at {row['document_tokens']:,} tokens cannot run: {_reason(row)}"
        for row in rows
        if "refused" in row
    ]
    labels = sorted({row["side"] for row in measured if row["weights"] != "as published"})
    lines += [f"{way}: random weights, speed only" for way in labels]
    return lines


def draw_longcontext(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    """Seconds to the first question's answer over the document's length."""
    rows = sorted(rows, key=lambda row: row["length"])
    ways = dict.fromkeys(row["side"] for row in rows)
    lines = []
    for colour, way in enumerate(ways):
        own = [row for row in rows if row["side"] == way and "refused" not in row]
        label = " (random weights)" if any(row["weights"] != "as published" for row in own) else ""
        for name, place in (("", 0), (", 2nd question", 1)):
            points = [
                (row["document_tokens"], max(0.01, row["questions"][place]["seconds"]))
                for row in own
                if len(row["questions"]) > place
            ]
            lines.append(Line(name=f"{way}{label}{name}", points=points, colour=colour, dashed=place > 0))
    notes = [f"{row['side']}, {row['document_tokens']:,} tokens: {_reason(row)}" for row in rows if "refused" in row]
    hardware = header["hardware"]["gpus"] or [f"{header['hardware']['cores']} CPU cores"]
    title = f"Seconds to an answer: {header['model']['name']}, {hardware[0]}"
    return draw_lines(title, lines, "tokens of the document", "seconds", notes)


def _time_line(row: Row) -> str:
    first, *later = row["questions"]
    second = f"{later[0]['seconds']:.1f}" if later else "-"
    right = [one["verdict"] == "right" for one in row["questions"]]
    judged = "-" if row["weights"] != "as published" else f"{sum(right)} of {len(right)}"
    several = [seconds_for(row, count) for count in QUESTIONS[1:]]
    shown = ["-" if one is None else f"{'' if one[1] else '~'}{one[0]:,.0f}" for one in several]
    return (
        f"{row['document_tokens']:>9,} {row['side']:10} {first['first_sign_s']:>8.1f} {first['seconds']:>8.1f} "
        f"{first['cpu_s']:>7.1f} "
        f"{second:>10} {tokens_per_s(row):>9,.0f} {shown[0]:>13} {shown[1]:>13} {judged:>7}"
    )


def _memory_line(row: Row) -> str:
    peak = row["peak_gpu_bytes"] or row["peak_rss_bytes"]
    return (
        f"{row['document_tokens']:>9,} {row['side']:10} {row['window_tokens']:>8,} {peak / _GIB:>9.2f} "
        f"{row['weights_bytes'] / _GIB:>12.2f} {row['kv_formula_bytes'] / _MIB:>14,.0f} "
        f"{row['kv_reserved_bytes'] / _MIB:>13,.0f} {row['kv_used_bytes'] / _MIB:>13,.0f}"
    )


def _reason(row: Row) -> str:
    return f"{row['refused']['error']}: {row['refused']['reason']}"
