"""Records to columns and back. Old rows that lack new fields, and new rows with fields not known here, both load."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Row

from serving.jobs.job import EventRecord, Job, JobRequest, JobState, Lane, RunnerStatus, StepEdit
from serving.storage.document_ref import document_from
from serving.storage.json_columns import known_fields


def request_from(text: str) -> JobRequest:
    fields = known_fields(JobRequest, json.loads(text))
    fields["documents"] = tuple(document_from(raw) for raw in fields.get("documents", ()))
    fields["edits"] = tuple(StepEdit(**known_fields(StepEdit, raw)) for raw in fields.get("edits", ()))
    for name in ("choices", "messages"):
        fields[name] = tuple(fields.get(name, ()))
    return JobRequest(**fields)


def runner_from(text: str) -> RunnerStatus:
    fields = known_fields(RunnerStatus, json.loads(text))
    fields["replicas"] = tuple(fields.get("replicas", ()))
    return RunnerStatus(**fields)


def job_from(row: Row[Any]) -> Job:
    columns = row._mapping
    plain = (
        *("id", "owner", "key_id", "surface", "background", "attempt", "fence", "last_seq", "cancel_requested"),
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
