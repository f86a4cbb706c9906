"""What a person sees while a run works: a table that redraws itself, or plain lines where there is no terminal.

Both write to standard error; standard output belongs to the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table
from rich.text import Text

from pipeline.documents.document import Document
from pipeline.llm.model import Stage
from pipeline.run.events import Event as RunEvent
from pipeline.run.events import Planned, Provisional, Warned
from pipeline.run.plan import Plan
from pipeline.run.state import RunProgress, StageProgress
from pipeline.text import duration
from serving.cli.show.answer import printable, provisional_line

Feed = Callable[[RunEvent], None]

PLAIN_INTERVAL_S = 10.0
"""Between two progress lines where nothing redraws: often enough to show life, seldom enough for a log."""


class Display(Protocol):
    """Where progress goes."""

    def report(self, text: str) -> None:
        """Tell the current step of the preparation."""
        ...

    def say(self, text: str) -> None:
        """Tell something that stays."""
        ...

    def watch(self, document: Document) -> AbstractContextManager[Feed]:
        """Show one run: within the context, give it the run's events."""
        ...

    def close(self) -> None:
        """Leave the screen as it should stay."""
        ...


def make_display(stream: TextIO, *, silent: bool = False) -> Display:
    """The display that fits `stream`: a terminal, a log, or nobody."""
    if silent:
        return SilentDisplay()
    return TerminalDisplay(stream) if stream.isatty() else PlainDisplay(stream)


class SilentDisplay:
    """For machines."""

    def report(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...

    @contextmanager
    def watch(self, document: Document) -> Iterator[Feed]:  # noqa: ARG002
        yield lambda _: None


class PlainDisplay:
    """One line for each thing worth knowing, and a progress line now and then."""

    def __init__(self, stream: TextIO, *, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s

    def report(self, text: str) -> None:
        self.say(text)

    def say(self, text: str) -> None:
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()

    def close(self) -> None: ...

    @contextmanager
    def watch(self, document: Document) -> Iterator[Feed]:
        progress = RunProgress()
        ended = Event()

        def feed(event: RunEvent) -> None:
            progress.add(event)
            if (line := standing_line(event, document)) is not None:
                self.say(line)

        def tick() -> None:
            while not ended.wait(self._interval_s):
                self.say(progress_line(progress))

        ticking = Thread(target=tick, name="longfold-display", daemon=True)
        ticking.start()
        try:
            yield feed
        finally:
            ended.set()
            ticking.join()
        self.say(progress_line(progress))


class TerminalDisplay:
    """A spinner while things are prepared, then a table that redraws four times a second."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._status: Status | None = None

    def report(self, text: str) -> None:
        shown = Text(printable(text))
        if self._status is None:
            self._status = self._console.status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def say(self, text: str) -> None:
        self._console.print(Text(printable(text)))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @contextmanager
    def watch(self, document: Document) -> Iterator[Feed]:
        self.close()
        progress = RunProgress()

        def feed(event: RunEvent) -> None:
            progress.add(event)
            if (line := standing_line(event, document)) is not None:
                live.console.print(Text(line, style="dim" if isinstance(event, Planned) else ""))

        with Live(console=self._console, get_renderable=lambda: progress_table(progress), refresh_per_second=4) as live:
            yield feed


def standing_line(event: RunEvent, document: Document) -> str | None:
    """What an event has to say that should stay on the screen, if anything."""
    match event:
        case Planned():
            return plan_line(event.plan)
        case Provisional():
            return provisional_line(event.answer, event.reason, document)
        case Warned():
            return f"Warning: {printable(event.message)}"
        case _:
            return None


def plan_line(plan: Plan) -> str:
    chunks = f"{plan.chunks:,} chunk{'s' if plan.chunks != 1 else ''}"
    return f"Plan: {plan.strategy}, {plan.document_tokens:,} tokens in {chunks}, at most {plan.calls:,} calls"


def progress_line(progress: RunProgress) -> str:
    """All stages in one line of text."""
    parts = [_stage_text(stage, at, progress.clock()) for stage, at in _in_order(progress)]
    return f"{duration(progress.elapsed_s())}: {'; '.join(parts) or 'waiting for the first outcome'}"


def progress_table(progress: RunProgress) -> Table:
    """All stages, one row each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("stage", min_width=8)
    table.add_column("", width=24)
    for title in ("done", "kept", "failed", "tokens/s", "left"):
        table.add_column(title, justify="right", min_width=6)
    for stage, at in _in_order(progress):
        eta_s = at.eta_s(progress.clock())
        table.add_row(
            stage.value,
            ProgressBar(total=at.calls, completed=at.done, width=24) if at.calls else "",
            _done_text(at),
            "" if at.kept is None else str(at.kept),
            str(at.failed) if at.failed else "",
            f"{at.tokens_per_s:,.0f}" if at.computed_tokens and at.tokens_per_s else "",
            "" if eta_s is None else duration(eta_s),
        )
    table.caption = duration(progress.elapsed_s())
    table.caption_justify = "left"
    return table


def _in_order(progress: RunProgress) -> list[tuple[Stage, StageProgress]]:
    return [(stage, progress.stages[stage]) for stage in Stage if stage in progress.stages]


def _done_text(at: StageProgress) -> str:
    return f"{at.done}/{at.calls}" if at.calls is not None else str(at.done)


def _stage_text(stage: Stage, at: StageProgress, now_s: float) -> str:
    parts = [f"{stage.value} {_done_text(at)}"]
    if at.kept is not None:
        parts.append(f"{at.kept} kept")
    if at.failed:
        parts.append(f"{at.failed} failed")
    if at.known:
        parts.append(f"{at.known} from the journal")
    if at.computed_tokens and at.tokens_per_s:
        parts.append(f"{at.tokens_per_s:,.0f} tokens/s")
    if (eta_s := at.eta_s(now_s)) is not None:
        parts.append(f"about {duration(eta_s)} left")
    return ", ".join(parts)
