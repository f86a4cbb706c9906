"""What a streaming client is told while a job runs: how far it is, the answer so far, the message as it is written."""

from __future__ import annotations

from pipeline.run.events import CallEnded, Event, Provisional, StageStarted, Written
from serving.jobs.events import RecordedRun, progress_record, progress_text
from serving.jobs.job import EventRecord


class StreamedJob:
    """A view of a job's history, record by record; the same records always give the same texts."""

    def __init__(self) -> None:
        self.progress = "queued"
        """How far it is, such as "map 70/166"; never a word of the document, so that it may be shown anywhere."""
        self.sent = ""
        """What the client has of the message: the beginning of it. A client cannot unread."""
        self._run = RecordedRun()

    def add(self, record: EventRecord) -> tuple[str, str]:
        """Take in one record. A line about the run, if there is news, and what to add to the message, if anything.

        A call that is sent again writes its message anew. As long as it writes the same, nothing is sent twice.
        """
        before = self.progress
        event = self._run.add(record)
        if record.kind in ("job.queued", "job.started"):
            self.progress = record.kind.removeprefix("job.")
        elif isinstance(event, StageStarted | CallEnded):
            self.progress = progress_text(progress_record(self._run.state))
        line = self.progress if self.progress != before else ""
        if isinstance(event, Written):  # what is written anew may not have come so far yet
            return line, self.rest(event.text) or ""
        return _answer_line(event) or line, ""

    def rest(self, message: str) -> str | None:
        """What is left to send of `message`; None if the client was sent something else."""
        if not message.startswith(self.sent):
            return None
        new = message[len(self.sent) :]
        self.sent = message
        return new


def _answer_line(event: Event | None) -> str:
    if not isinstance(event, Provisional):
        return ""
    return f"So far: {event.answer.text} ({event.reason}; {event.answer.probability:.0%} sure)"
