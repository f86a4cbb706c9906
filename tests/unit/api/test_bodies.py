"""What a caller may say about a job is what the pipeline understands, no more and no less."""

from __future__ import annotations

from dataclasses import fields

from pipeline.run.request import Limits, Request
from serving.api.native.bodies import JobBody, JobLimits, JobOptions, job_request
from serving.jobs.work import pipeline_request


def test_options_and_limits_are_the_pipelines() -> None:
    named = {"question", "task", "choices", "strategy", "limits"}
    assert set(JobOptions.model_fields) == {field.name for field in fields(Request)} - named
    assert set(JobLimits.model_fields) == {field.name for field in fields(Limits)}
    for field in fields(Request):
        if field.name in JobOptions.model_fields:
            assert JobOptions.model_fields[field.name].default == field.default


def test_a_body_reaches_the_pipeline_as_it_was_said() -> None:
    body = JobBody.model_validate(
        {
            "question": " Which? ",
            "text": "x",
            "choices": ["red", "blue"],
            "options": {"chunk_tokens": 600, "use_gate": False},
            "limits": {"calls": 3, "wall_time_s": 2.5},
        }
    )
    stored = job_request(body, ())
    assert stored.options == {"chunk_tokens": 600, "use_gate": False}
    asked = pipeline_request(stored)
    assert (asked.question, asked.task, asked.choices) == ("Which?", "multiple_choice", ("red", "blue"))
    assert (asked.chunk_tokens, asked.use_gate, asked.best_first) == (600, False, True)
    assert (asked.limits.calls, asked.limits.tokens, asked.limits.wall_time_s) == (3, None, 2.5)


def test_the_description_has_the_limits_of_numbers() -> None:
    described = JobBody.model_json_schema()["$defs"]
    tokens, gather = (
        described["JobLimits"]["properties"]["tokens"],
        described["JobOptions"]["properties"]["gather_tokens"],
    )
    assert tokens["anyOf"][0]["minimum"] == 1
    assert (gather["minimum"], gather["maximum"]) == (0, 100_000)
    assert described["JobOptions"]["properties"]["chunk_tokens"]["anyOf"][0]["minimum"] == 512
