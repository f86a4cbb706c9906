"""A run's events as the lines of a job's history, and back.

Each line has a key that is the same when a resumed run reports the same again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.documents.document import Span
from pipeline.findings.answer import Answer, Coverage, confidence_of
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.llm.model import CallFailed, Stage, Usage
from pipeline.run.checkpoints import Checkpoint
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
    StepReached,
    Warned,
    Written,
)
from pipeline.run.plan import Plan
from pipeline.run.state import RunState
from serving.jobs.job import EventRecord, NewEvent

_NOT_IN_KEY: Mapping[str, frozenset[str]] = {
    "call.finished": frozenset({"tokens", "cached"}),
    "provisional": frozenset({"reason"}),
}
"""May differ when a resumed run reports the same again: who paid for a call, and what was shown before."""


class EventRecorder:
    """Turns the events of one attempt into records, in order, and keeps the state that they make."""

    def __init__(self, revision: int = 0) -> None:
        """`revision` counts the edits of the job: its steps are reported again after each."""
        self.state = RunState()
        self._revision = revision
        self._recorded: Counter[str] = Counter()

    def record(self, event: Event) -> NewEvent | None:
        """None for what a job's history has no line for: its end is written by the store."""
        described = self._describe(event)
        self.state.apply(event)
        if described is None:
            return None
        kind, data = described
        content = {name: value for name, value in data.items() if name not in _NOT_IN_KEY.get(kind, ())}
        if kind == "step":
            content["revision"] = self._revision
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        key = f"{kind}:{digest}"
        self._recorded[key] += 1
        return NewEvent(kind=kind, data=data, key=f"{key}:{self._recorded[key]}")

    def _describe(self, event: Event) -> tuple[str, dict[str, Any]] | None:  # noqa: C901, PLR0911  one line per event
        match event:
            case Planned():
                return "plan", asdict(event.plan)
            case Split():
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
            case StepReached():
                return "step", step_record(event.checkpoint)
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
        at = len(self.state.written) if text.startswith(self.state.written) else 0
        return ("written", {"at": at, "text": text[at:]}) if text[at:] else None

    def _mapped(self, event: ChunkMapped) -> dict[str, Any]:
        finding = event.finding
        span = self.state.chunks[event.chunk_index].span
        assert span is not None, "a document is split before its chunks are read"
        return {
            "chunk": event.chunk_index,
            "span": [span.start, span.end],
            "empty": finding is None,
            "answer": finding.answer if finding else "",
            "confidence": confidence_of(finding.probability) if finding else None,
            "probability": round(finding.probability, 4) if finding else None,
            "evidence": evidence_records(finding.evidence) if finding else [],
        }


class RecordedRun:
    """The state of a run from its job's history: the way back from records to events, as far as they say."""

    def __init__(self) -> None:
        self.state = RunState()
        self.last_seq = 0

    def add(self, record: EventRecord) -> Event | None:
        """Take in the next record. What it says of the run, if anything; the job's own life is not the run's."""
        self.last_seq = record.seq
        if record.kind == "job.edited":  # what came after that step came from another state
            self.state.steps = {n: step for n, step in self.state.steps.items() if n <= record.data["step"]}
        event = self._read(record.kind, record.data)
        if event is not None:
            self.state.apply(event)
        return event

    def _read(self, kind: str, data: Mapping[str, Any]) -> Event | None:  # noqa: C901, PLR0911  one line per kind
        match kind:
            case "plan":
                return Planned(plan=Plan(**data))
            case "split":
                return Split(spans=tuple(Span(start, end) for start, end in data["spans"]))
            case "stage.started":
                return StageStarted(stage=Stage(data["stage"]), calls=data["calls"])
            case "call.finished":
                return _call_from(data)
            case "chunk.gated":
                return ChunkGated(chunk_index=data["chunk"], score=data["score"])
            case "chunk.mapped":
                return ChunkMapped(chunk_index=data["chunk"], finding=None if data["empty"] else _finding_from(data))
            case "collapsed":
                return Collapsed(depth=data["depth"], chunk_indices=tuple(data["chunks"]))
            case "step" | "job.paused":
                return StepReached(checkpoint=_checkpoint_from(data))
            case "provisional":
                return Provisional(answer=_answer_from(data), reason=data["reason"])
            case "written":
                return Written(text=self.state.written[: data["at"]] + data["text"])
            case "warning":
                return Warned(message=data["message"])
            case _:
                return None


def progress_record(state: RunState) -> dict[str, Any]:
    """What a poll shows of a run: its stages in the order in which they began."""
    now_s = state.clock()
    return {
        "stages": {
            stage.value: {
                "calls": at.calls,
                "done": at.done,
                "failed": at.failed,
                "kept": at.kept,
                "tokens_per_s": round(at.tokens_per_s, 1),
                "eta_s": None if (eta_s := at.eta_s(now_s)) is None else round(eta_s, 1),
            }
            for stage, at in state.stages.items()
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
        "evidence": evidence_records(answer.evidence),
        "reason": event.reason,
    }


def evidence_records(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [
        {
            "start": one.span.start if one.span else None,
            "end": one.span.end if one.span else None,
            "quote": one.quote,
            "alignment": one.alignment.value,
        }
        for one in evidence
    ]


def step_record(checkpoint: Checkpoint) -> dict[str, Any]:
    """The state as JSON; an edit of it is the job's to keep."""
    record = {"step": checkpoint.number, "before": checkpoint.name, "state": json.loads(checkpoint.state)}
    return record | ({"origin": checkpoint.origin} if checkpoint.origin else {})


def _checkpoint_from(data: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        number=data["step"], name=data["before"], state=json.dumps(data["state"]), origin=data.get("origin", "")
    )


def _call_from(data: Mapping[str, Any]) -> CallEnded:
    prompt, cached, output = data.get("tokens", (0, 0, 0))
    from_journal, failed = data.get("cached", False), data.get("state") == "failed"
    usage = Usage(calls=1, prompt_tokens=prompt, cached_tokens=cached, output_tokens=output)
    return CallEnded(
        stage=Stage(data["stage"]),
        chunk_index=data.get("chunk"),
        usage=Usage(journal_calls=1) if from_journal else usage,
        failed=CallFailed(error=data["error"], message="") if failed else None,
        from_journal=from_journal,
    )


def _finding_from(data: Mapping[str, Any]) -> Finding:
    chunk = data["chunk"]
    return Finding(
        chunk_indices=(chunk,),
        evidence=_evidence_from(data.get("evidence", ()), chunk),
        rationale="",
        answer=data["answer"],
        stated_confidence=confidence_of(data["probability"]),
        probability=data["probability"],
    )


def _answer_from(data: Mapping[str, Any]) -> Answer:
    return Answer(
        text=data["answer"],
        explanation="",
        found=bool(data["answer"]),
        confidence=confidence_of(data["probability"]),
        probability=data["probability"],
        evidence=_evidence_from(data.get("evidence", ()), 0),
        coverage=Coverage(chunks=0, chunks_read=0, chunks_extracted=0),
        provisional=True,
    )


def _evidence_from(records: Sequence[Mapping[str, Any]], chunk: int) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            quote=record["quote"],
            chunk_index=chunk,
            span=None if record["start"] is None else Span(record["start"], record["end"]),
            alignment=Alignment(record["alignment"]),
        )
        for record in records
    )
