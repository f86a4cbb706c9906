"""The text of a conversation's next message, put together from a job's events, for a client that cannot unread."""

from __future__ import annotations

from serving.jobs.job import EventRecord


class WrittenText:
    """What was written so far, and what of it the client was told: the beginning of it.

    A call that is sent again writes anew. As long as it writes the same, nothing is told twice.
    """

    def __init__(self) -> None:
        self.told = ""
        self._text = ""

    def add(self, record: EventRecord) -> str:
        """What an event adds to what the client was told; empty if nothing."""
        if record.kind != "written":
            return ""
        self._text = self._text[: record.data["at"]] + str(record.data["text"])
        return self.rest(self._text) or ""  # what is written anew may not have come so far yet

    def rest(self, whole: str) -> str | None:
        """What is left to tell of `whole`; None if the client was told something else."""
        if not whole.startswith(self.told):
            return None
        new = whole[len(self.told) :]
        self.told = whole
        return new
