"""From what a run tells to the lines of a job's history, each under a key that is the same when it is told again."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.documents.document import Span
from pipeline.findings.answer import confidence_of
from pipeline.findings.finding import Evidence
from pipeline.run.events import (
    CallEnded,
    ChunkGated,
    ChunkMapped,
    Collapsed,
    Event,
    Planned,
    Provisional,
    Split,
    StageStarted,
    Warned,
    Written,
)
from pipeline.run.state import RunProgress
from serving.jobs.job import NewEvent

_NOT_IN_KEY: Mapping[str, frozenset[str]] = {
    "call.finished": frozenset({"tokens", "cached"}),
    "provisional": frozenset({"reason"}),
}
"""What may differ when a resumed run tells the same again: who paid for a call, and what was shown before."""


class EventRecorder:
    """Turns the events of one attempt into records, in order."""

    def __init__(self) -> None:
        self._spans: Sequence[Span] = ()
        self._told: Counter[str] = Counter()
        self._text = ""

    def record(self, event: Event) -> NewEvent | None:
        """None for what a job's history has no line for: its end is written by the store."""
        described = self._describe(event)
        if described is None:
            return None
        kind, data = described
        content = {name: value for name, value in data.items() if name not in _NOT_IN_KEY.get(kind, ())}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        key = f"{kind}:{digest}"
        self._told[key] += 1
        return NewEvent(kind=kind, data=data, key=f"{key}:{self._told[key]}")

    def _describe(self, event: Event) -> tuple[str, dict[str, Any]] | None:  # noqa: C901, PLR0911  one line per event
        match event:
            case Planned():
                return "plan", asdict(event.plan)
            case Split():
                self._spans = event.spans
                return "split", {"spans": [[span.start, span.end] for span in event.spans]}
            case StageStarted():
                return "stage.started", {"stage": event.stage.value, "calls": event.calls}
            case CallEnded():
                return "call.finished", _call(event)
            case ChunkGated():
                return "chunk.gated", {"chunk": event.chunk_index, "score": round(event.score, 4)}
            case ChunkMapped():
                return "chunk.mapped", self._mapped(event)
            case Collapsed():
                return "collapsed", {"depth": event.depth, "chunks": list(event.chunk_indices)}
            case Provisional():
                return "provisional", _provisional(event)
            case Written():
                return self._written(event.text)
            case Warned():
                return "warning", {"message": event.message}
            case _:
                return None

    def _written(self, text: str) -> tuple[str, dict[str, Any]] | None:
        """What was added, and where; everything, if it was begun anew and differs."""
        at = len(self._text) if text.startswith(self._text) else 0
        self._text = text
        return ("written", {"at": at, "text": text[at:]}) if text[at:] else None

    def _mapped(self, event: ChunkMapped) -> dict[str, Any]:
        finding = event.finding
        span = self._spans[event.chunk_index]
        return {
            "chunk": event.chunk_index,
            "span": [span.start, span.end],
            "empty": finding is None,
            "answer": finding.answer if finding else "",
            "confidence": confidence_of(finding.probability) if finding else None,
            "probability": round(finding.probability, 4) if finding else None,
            "evidence": _evidence(finding.evidence) if finding else [],
        }


def progress_record(progress: RunProgress) -> dict[str, Any]:
    """What a poll shows of a run: its stages in the order in which they began."""
    now_s = progress.clock()
    return {
        "stages": {
            stage.value: {
                "calls": reached.calls,
                "done": reached.done,
                "failed": reached.failed,
                "kept": reached.kept,
                "tokens_per_s": round(reached.tokens_per_s, 1),
                "eta_s": None if (eta_s := reached.eta_s(now_s)) is None else round(eta_s, 1),
            }
            for stage, reached in progress.stages.items()
        }
    }


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """In a few words, such as "map 118/166"; empty before the first call."""
    stages = progress.get("stages", {}) if progress else {}
    if not stages:
        return ""
    name = next((name for name, stage in stages.items() if stage["done"] < (stage["calls"] or 0)), list(stages)[-1])
    calls = stages[name]["calls"]
    return f"{name} {stages[name]['done']}" + (f"/{calls}" if calls is not None else "")


def _call(event: CallEnded) -> dict[str, Any]:
    usage = event.usage
    return {
        "stage": event.stage.value,
        "chunk": event.chunk_index,
        "state": "failed" if event.failed else "ok",
        "error": event.failed.error if event.failed else "",
        "tokens": [usage.prompt_tokens, usage.cached_tokens, usage.output_tokens],
        "cached": usage.journal_calls > 0,
    }


def _provisional(event: Provisional) -> dict[str, Any]:
    answer = event.answer
    return {
        "answer": answer.text,
        "confidence": answer.confidence,
        "probability": round(answer.probability, 4),
        "evidence": _evidence(answer.evidence),
        "reason": event.reason,
    }


def _evidence(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [
        {
            "start": one.span.start if one.span else None,
            "end": one.span.end if one.span else None,
            "quote": one.quote,
            "alignment": one.alignment.value,
        }
        for one in evidence
    ]
