"""What people and machines see of an answer and of a run at work."""

import io
import json
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from pipeline.documents.document import Document, Span
from pipeline.findings.answer import Answer, Coverage, FailedChunk
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.llm.model import CallFailed, Stage, Usage
from pipeline.run.answer_json import answer_record
from pipeline.run.events import CallEnded, ChunkGated, ChunkMapped, Event, Planned, Provisional, StageStarted, Warned
from pipeline.run.plan import Plan
from pipeline.run.state import RunProgress
from pipeline.text import duration
from serving.cli.show.answer import answer_lines, plan_lines, printable, usage_lines
from serving.cli.show.live import PlainDisplay, TerminalDisplay, progress_line, progress_table

DOCUMENT = Document.join(
    [Document.from_text("One.\nTwo \x1b[31mred\x1b[0m.\n", "a.txt"), Document.from_text("Three.", "b\x07.txt")]
)
QUOTE = Evidence(quote="Three.", chunk_index=0, span=Span(25, 31), alignment=Alignment.POINTER)
PLAN = Plan(
    strategy="mapreduce",
    reason="long",
    document_tokens=100_000,
    chunks=50,
    calls=120,
    prompt_tokens=200_000,
    output_tokens=9000,
    depth=4,
    graph="",
)
USAGE = Usage(calls=1, prompt_tokens=1000, cached_tokens=200, output_tokens=10)


def make_answer(**changes: object) -> Answer:
    answer = Answer(
        text="three",
        explanation="It is written there.",
        found=True,
        confidence=4,
        probability=0.71,
        evidence=(QUOTE,),
        coverage=Coverage(chunks=50, chunks_read=48, chunks_extracted=6),
        usage={Stage.GATE: USAGE, Stage.REDUCE: Usage(calls=1, prompt_tokens=50, output_tokens=5)},
        seconds={Stage.GATE: 61.5, Stage.REDUCE: 1.25},
        total_seconds=64.0,
    )
    return replace(answer, **changes)  # type: ignore[arg-type]


def render(answer: Answer) -> str:
    return "\n".join(answer_lines(answer, DOCUMENT))


def test_an_answer_shows_confidence_coverage_and_where_each_quote_stands() -> None:
    assert DOCUMENT.slice(Span(25, 31)) == "Three."
    text = render(make_answer())
    assert "Answer: three\nconfidence 4 of 5 (71%) · 48 of 50 chunks read (96%), 6 of them closely · 64 s" in text
    assert "[1] “Three.”\n    b␇.txt, line 1, characters 25-31; named by number" in text


def test_failed_chunks_conflicts_and_warnings_are_shown() -> None:
    failed = FailedChunk(index=7, span=Span(0, 4), stage=Stage.MAP, error="CallTimedOut", message="too slow")
    other = Finding(
        chunk_indices=(2,), evidence=(QUOTE,), rationale="", answer="four", stated_confidence=5, probability=0.3
    )
    coverage = Coverage(chunks=50, chunks_read=49, chunks_extracted=6, failed_chunks=(failed,))
    text = render(make_answer(coverage=coverage, conflicts=(other,), warnings=("Look out.",)))
    assert "Not read: chunk 7, characters 0-4: too slow" in text
    assert "  four (30% sure)" in text
    assert "Warning: Look out." in text


def test_what_was_not_found_is_not_dressed_up() -> None:
    text = render(make_answer(text="", found=False, evidence=(), explanation=""))
    assert text.startswith("The document does not say.\nnothing found · ")


def test_no_control_character_of_a_document_reaches_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202egnp.exe\0"
    evidence = Evidence(quote=hostile, chunk_index=0, span=None, alignment=Alignment.UNLOCATED)
    answer = make_answer(text=hostile, explanation=hostile, evidence=(evidence,), warnings=(hostile,))
    shown = render(answer) + printable(hostile)
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    assert not set(shown) & set("\x7f\x9b\u202e")


def test_a_very_long_quote_is_shortened_for_people_only() -> None:
    evidence = replace(QUOTE, quote="word " * 1000)
    answer = make_answer(evidence=(evidence,))
    assert len(render(answer)) < 2000
    assert answer_record(answer, DOCUMENT)["evidence"][0]["quote"] == evidence.quote


def test_the_record_is_json_with_offsets_and_places() -> None:
    record = json.loads(json.dumps(answer_record(make_answer(), DOCUMENT)))
    assert record["evidence"][0] == {
        "quote": "Three.",
        "chunk": 0,
        "alignment": "pointer",
        "similarity": 1.0,
        "source": "b\x07.txt",
        "line": 1,
        "start": 25,
        "end": 31,
    }
    assert record["usage"]["gate"]["seconds"] == 61.5


def test_usage_is_a_table_with_a_sum() -> None:
    lines = list(usage_lines(make_answer().usage, make_answer().seconds))
    assert [line.split()[0] for line in lines] == ["stage", "gate", "reduce", "all"]
    assert lines[-1].split() == ["all", "2", "0", "1,050", "200", "15"]


def test_the_plan_estimates_time_only_where_speed_was_measured() -> None:
    assert "not known" in "\n".join(plan_lines(PLAN, kv_bytes_per_token=1024, tokens_per_s=None))
    known = "\n".join(plan_lines(PLAN, kv_bytes_per_token=28_672, tokens_per_s=250.0))
    assert "about 6 min 40 s" in known
    assert "2.67 GiB" in known


def test_durations_are_short_and_honest() -> None:
    assert [duration(s) for s in (0.04, 61.4, 150, 1500, 8000)] == [
        "0.0 s",
        "61 s",
        "2 min 30 s",
        "25 min",
        "2 h 13 min",
    ]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def ended(stage: Stage, *, failed: bool = False, known: bool = False) -> CallEnded:
    failure = CallFailed(error="CallTimedOut", message="") if failed else None
    return CallEnded(stage=stage, chunk_index=0, usage=USAGE, failed=failure, from_journal=known)


def feed(progress: RunProgress, clock: Clock, events: Iterable[tuple[float, Event]]) -> None:
    for after_s, event in events:
        clock.now_s += after_s
        progress.add(event)


def test_chunks_that_are_read_again_are_not_kept_twice() -> None:
    progress = RunProgress()
    for stage, calls in ((Stage.GATE, 6), (Stage.MAP, 4), (Stage.MAP, 9)):
        progress.add(StageStarted(stage=stage, calls=calls))
    assert progress.stages[Stage.GATE].kept == 6


def test_progress_counts_kept_failed_speed_and_time_left() -> None:
    clock = Clock()
    progress = RunProgress(clock=clock)
    feed(
        progress,
        clock,
        [
            (0, Planned(plan=PLAN)),
            (0, StageStarted(stage=Stage.GATE, calls=10)),
            (2, ended(Stage.GATE)),
            (2, ended(Stage.GATE, failed=True)),
            (0, ChunkGated(chunk_index=0, score=1.0)),
            (0, StageStarted(stage=Stage.MAP, calls=3)),
            (1, ended(Stage.MAP)),
            (0, ChunkMapped(chunk_index=0, finding=None)),
        ],
    )
    gate, mapped = progress.stages[Stage.GATE], progress.stages[Stage.MAP]
    assert (gate.done, gate.failed, gate.kept, gate.calls) == (2, 1, 3, 10)
    assert gate.tokens_per_s == 1620 / 4
    assert gate.eta_s(now_s=5.0) == 2.0 * 8 - 1.0
    assert (mapped.done, mapped.kept) == (1, 0)
    assert "gate 2/10, 3 kept, 1 failed, 405 tokens/s, about 15 s left" in progress_line(progress)
    console = Console(file=io.StringIO(), width=100)
    console.print(progress_table(progress))
    assert "2/10" in console.file.getvalue()  # type: ignore[attr-defined]


def test_calls_from_the_journal_say_nothing_about_speed() -> None:
    clock = Clock()
    progress = RunProgress(clock=clock)
    feed(progress, clock, [(0, StageStarted(stage=Stage.GATE, calls=4)), (0.01, ended(Stage.GATE, known=True))])
    gate = progress.stages[Stage.GATE]
    assert (gate.computed_tokens, gate.eta_s(now_s=1.0)) == (0, None)


def test_a_log_gets_a_line_now_and_then_and_what_stays() -> None:
    stream = io.StringIO()
    with PlainDisplay(stream, interval_s=0.02).watch(DOCUMENT) as show:
        show(Planned(plan=PLAN))
        show(StageStarted(stage=Stage.GATE, calls=100))
        for done in range(100):
            show(ended(Stage.GATE))
            while done == 50 and "gate 51/100" not in stream.getvalue():  # a line comes without any event
                time.sleep(0.005)
        show(Provisional(answer=make_answer(provisional=True), reason="the first supported finding"))
        show(Warned(message="careful"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Plan: mapreduce, 100,000 tokens in 50 chunks, at most 120 calls"
    assert lines[-1].endswith("gate 100/100")
    so_far = next(line for line in lines if line.startswith("So far"))
    assert so_far.startswith("So far: three  (the first supported finding; 71% sure, b␇.txt, line 1;")
    assert "Warning: careful" in lines


def test_a_terminal_display_ends_with_the_table_as_it_was() -> None:
    stream = io.StringIO()
    display = TerminalDisplay(stream)
    display.report("starting")
    with display.watch(DOCUMENT) as show:
        show(StageStarted(stage=Stage.GATE, calls=2))
        show(ended(Stage.GATE))
    display.close()
    assert "1/2" in stream.getvalue()


@pytest.mark.parametrize("alignment", Alignment)
def test_every_way_in_which_a_quote_is_found_has_its_words(alignment: Alignment) -> None:
    assert "“Three.”" in render(make_answer(evidence=(replace(QUOTE, alignment=alignment),)))
