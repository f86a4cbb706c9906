"""Records to columns and back. Old rows that lack new fields, and new rows with fields not known here, both load."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from serving.jobs.job import (
    DocumentRef,
    EventRecord,
    Job,
    JobRequest,
    JobState,
    Lane,
    RunnerStatus,
    StepEdit,
)


def to_json(value: Any) -> str:
    """In ASCII: any character of a document, NUL and lone surrogates too, passes through every database."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def to_json_or_null(value: Any) -> str | None:
    return None if value is None else to_json(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no place in a stored record")


def document_from(raw: Mapping[str, Any]) -> DocumentRef:
    fields = _known(DocumentRef, raw)
    fields["sources"] = tuple((str(n), int(s), int(e), str(c)) for n, s, e, c in fields.get("sources", ()))
    return DocumentRef(**fields)


def request_from(text: str) -> JobRequest:
    fields = _known(JobRequest, json.loads(text))
    fields["documents"] = tuple(document_from(raw) for raw in fields.get("documents", ()))
    fields["edits"] = tuple(StepEdit(**_known(StepEdit, raw)) for raw in fields.get("edits", ()))
    for name in ("choices", "messages"):
        fields[name] = tuple(fields.get(name, ()))
    return JobRequest(**fields)


def runner_from(text: str) -> RunnerStatus:
    fields = _known(RunnerStatus, json.loads(text))
    fields["replicas"] = tuple(fields.get("replicas", ()))
    return RunnerStatus(**fields)


def job_from(row: Row[Any]) -> Job:
    columns = row._mapping
    plain = (
        *(
            "id",
            "owner",
            "key_id",
            "surface",
            "background",
            "gateway_id",
            "attempt",
            "fence",
            "last_seq",
            "cancel_requested",
        ),
        *("created_unix_s", "started_unix_s", "finished_unix_s"),
    )
    as_json = ("plan", "progress", "result", "error", "usage")
    fields: dict[str, Any] = {name: columns[name] for name in plain}
    fields |= {name: None if columns[name] is None else json.loads(columns[name]) for name in as_json}
    return Job(
        **fields,
        lane=Lane(columns["lane"]),
        state=JobState(columns["state"]),
        request=request_from(columns["request"]),
    )


def event_from(row: Row[Any]) -> EventRecord:
    columns = row._mapping
    return EventRecord(
        seq=columns["seq"],
        kind=columns["kind"],
        data=json.loads(columns["data"]),
        created_unix_s=columns["created_unix_s"],
    )


def _known(record: type, raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(record)}
    return {name: value for name, value in raw.items() if name in names}
