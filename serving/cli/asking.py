"""What the commands that ask go through, one after another: display, documents, model, session, event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.documents.document import Document
from pipeline.documents.load import STDIN, load_documents
from pipeline.errors import CapacityError
from pipeline.findings.answer import Answer
from pipeline.text import duration
from serving.cli.show.live import Display, make_display
from serving.session import OpenModel, Session, describe_model, open_session, resolve_model
from serving.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AskContext:
    """Everything at hand while questions are answered."""

    settings: Settings
    document: Document
    session: Session
    display: Display
    runner: asyncio.Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Before a session is open. Most mistakes show here, where they cost no engine."""

    settings: Settings
    display: Display

    def load(self, paths: tuple[str, ...]) -> Document:
        return load_documents(paths, sys.stdin.buffer if STDIN in paths else None, warn=self.display.say)

    def resolve_model(self) -> OpenModel:
        """The model that the settings name, pulled if need be, and announced."""
        model = resolve_model(self.settings, self.display.report)
        self.display.say(describe_model(self.settings, model))
        return model

    @contextmanager
    def open(self, model: OpenModel, document: Document) -> Iterator[AskContext]:
        """Reach or start a cluster. What still runs in the event loop is cancelled before the cluster is left."""
        with open_session(self.settings, model, self.display.report) as session, asyncio.Runner() as runner:
            yield AskContext(
                settings=self.settings, document=document, session=session, display=self.display, runner=runner
            )


@contextmanager
def asking(settings: Settings, *, silent: bool = False) -> Iterator[Asking]:
    """Show progress on standard error, unless `silent`, and leave the screen as it should stay."""
    display = make_display(sys.stderr, silent=silent)
    try:
        yield Asking(settings=settings, display=display)
    finally:
        display.close()


def exit_code_of(answer: Answer) -> int:
    """0 for an answer and for an explicit "the document does not say"; that nothing could be read is a failure."""
    return CapacityError.exit_code if answer.coverage.nothing_read else 0


def faster_text(seconds: float, first_s: float) -> str:
    """How a question on the warm document compares with the first one."""
    factor = first_s / max(seconds, 1e-3)
    compared = f"{factor:.1f} times faster than the first" if factor >= 1.05 else "no faster than the first"
    return f"{duration(seconds)}, {compared}"


def model_record(model: OpenModel) -> dict[str, Any]:
    profile = model.profile
    return {"name": profile.name, "fingerprint": profile.fingerprint, "context_tokens": profile.context_tokens}
