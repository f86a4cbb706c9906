"""What a run of the journal was asked, so that it can be asked again."""

from __future__ import annotations

from pipeline.dispatch.journal import RunRecord
from pipeline.documents.load import STDIN
from pipeline.errors import NothingToResume
from pipeline.run.request import Limits, Request
from serving.cli.ask import Wish
from serving.session import open_journal
from serving.settings import Settings


def resume_wish(run: str, settings: Settings) -> tuple[Wish, str]:
    """What the interrupted run `run` (empty: the latest) was asked, and of which model."""
    with open_journal(settings) as journal:
        record = journal.find_run(run)
    if record is None:
        raise NothingToResume(f"No run {run!r} is known; ask the question without --resume." if run else "")
    return recorded_wish(record)


def recorded_wish(record: RunRecord) -> tuple[Wish, str]:
    """What a run was asked, and of which model."""
    request = dict(record.request["request"])
    request["choices"] = tuple(request["choices"])
    request["limits"] = Limits(**request["limits"])
    paths = tuple(record.request["paths"])
    if STDIN in paths:
        raise NothingToResume(
            "That run read its document from standard input; give the same input and question again, "
            "and the calls that were completed are taken from the journal."
        )
    wish = Wish(
        paths=paths,
        request=Request(**request),
        run=record.run_id,
        document_sha256=record.request["document"],
    )
    return wish, str(record.request["model"])
