"""How far a job is, in a few words, computed from its events: "map 70/166"; and what its answer is so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from serving.jobs.events import progress_text
from serving.jobs.job import EventRecord


@dataclass(slots=True)
class ProgressLine:
    """Fed with a job's events in order; the same events always give the same lines."""

    text: str = "queued"
    """How far it is; never a word of the document, so that it may stand anywhere."""
    _stages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def tell(self, record: EventRecord) -> str:
        """Take in one event, and return what there is to tell of it: the new line, an answer so far, or nothing."""
        if record.kind == "provisional":
            return f"So far: {record.data['answer']} ({record.data['reason']}; {record.data['probability']:.0%} sure)"
        return self.text if self._add(record) else ""

    def _add(self, record: EventRecord) -> bool:
        """True if the line changed."""
        before = self.text
        match record.kind:
            case "job.queued":
                self.text = "queued"
            case "job.started":
                self.text = "started"
            case "stage.started":
                self._stage(record)["calls"] = record.data.get("calls")
            case "call.finished":
                self._stage(record)["done"] += 1
            case _:
                return False
        if self._stages and record.kind in ("stage.started", "call.finished"):
            self.text = progress_text({"stages": self._stages})
        return self.text != before

    def _stage(self, record: EventRecord) -> dict[str, Any]:
        return self._stages.setdefault(str(record.data["stage"]), {"calls": None, "done": 0})
