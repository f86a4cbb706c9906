"""What the suite `gateway` counts as a fault, and how it shows what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.report.gateway import report_gateway
from benchmarks.systems.gateway_client import Followed, count_faults
from benchmarks.systems.scripted_service import write_model
from pipeline.errors import SettingInvalid
from serving.models.check import check_model

STORED = {"job_a": [(1, "job.queued"), (2, "job.started"), (3, "job.completed")]}
REQUEST = {
    "part": "request",
    "request": "GET /healthz",
    "clients": 16,
    "p50_ms": 1.5,
    "p99_ms": 4.0,
    "per_s": 4000.0,
    "gateway_cpu_ms": 0.25,
}


@pytest.mark.parametrize(
    ("places", "missing", "repeated", "wrong"),
    [((0, 1, 2), 0, 0, 0), ((0, 2), 1, 0, 1), ((0, 1, 1, 2), 0, 1, 1), ((1, 0, 2), 0, 0, 1), ((), 3, 0, 1)],
)
def test_a_stream_has_every_event_once_and_in_order(
    places: tuple[int, ...], missing: int, repeated: int, wrong: int
) -> None:
    stream = Followed(job_id="job_a", events=[STORED["job_a"][place] for place in places])
    assert count_faults([stream], STORED) == {
        "missing": missing,
        "repeated": repeated,
        "streams_not_as_stored": wrong,
    }


def test_the_report_says_that_the_model_is_scripted_and_shows_each_request() -> None:
    lines = report_gateway({}, [REQUEST], [])
    assert "scripted" in lines[0]
    assert lines[-1].split() == ["GET", "/healthz", "16", "1.50", "4.00", "4,000", "0.25"]


def test_the_scripted_services_model_passes_every_check(tmp_path: Path) -> None:
    write_model(tmp_path / "scripted")
    assert {result.status for result in check_model(tmp_path / "scripted")} <= {"ok", "warn"}


def test_another_model_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "gateway", "--model", "smollm2-135m", "--out", str(tmp_path)])
    assert isinstance(done.exception, SettingInvalid)
    assert list(tmp_path.iterdir()) == []
