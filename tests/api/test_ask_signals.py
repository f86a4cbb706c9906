"""What a signal leaves of `longfold ask`: a cancelled job, or one whose lease stands still, and nothing that runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serving.jobs.job import LOCAL_OWNER, JobState
from serving.jobs.store import JobStore
from serving.storage.database import Database
from tests.api.rig import noted_calls, story, until

_PROGRAM = """
import sys
from contextlib import contextmanager
from pathlib import Path
import pipeline.llm.scripted as scripted
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from serving.cli import asking, main
from serving.session import OpenModel, Session, SpeedBook
from tests.api.rig import noting, reader
from tests.unit.cli.command_stage import PROFILE, ScriptedOpenModel

folder, delay_s = Path(sys.argv[1]), float(sys.argv[2])

@contextmanager
def open_session(settings, model, report):
    answering = scripted.ScriptedModel(noting(reader(), folder, delay_s=delay_s))
    journal = Journal(settings.cache_dir / "journal.sqlite")
    dispatcher = InlineDispatcher(answering, max_calls=1)
    yield Session(model=model, dispatcher=dispatcher, journal=journal, speeds=SpeedBook(settings.cache_dir))
    journal.close()

asking.open_session = open_session
asking.resolve_model = lambda settings, report: ScriptedOpenModel(PROFILE)
sys.argv = ["longfold", *sys.argv[3:]]
main.main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "story.txt").write_text(story())
    return tmp_path


def begin(folder: Path, *arguments: str, delay_s: float) -> subprocess.Popen[str]:
    environment = {"LONGFOLD_STATE_DIR": str(folder / "state"), "LONGFOLD_CACHE_DIR": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), str(delay_s), *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


async def only_job(folder: Path) -> tuple[str, JobState]:
    database = Database.open(f"sqlite:///{folder / 'state' / 'longfold.sqlite'}")
    [job] = await JobStore(database).list_jobs(LOCAL_OWNER)
    await database.close()
    return f"job_{job.id}", job.state


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_command_cancels_its_job_and_says_how_to_go_on(
    folder: Path, number: signal.Signals
) -> None:
    asking = begin(folder, "ask", str(folder / "story.txt"), "-q", "Who was the harbour master?", delay_s=0.3)
    await until(lambda: len(noted_calls(folder)) >= 4)
    asking.send_signal(number)
    output, errors = asking.communicate(timeout=20)
    assert asking.returncode == 130, output + errors
    job, state = await only_job(folder)
    assert state is JobState.CANCELLED
    assert errors.rstrip().endswith(f"To go on: longfold jobs resume {job}")


async def test_a_killed_command_is_resumed_by_another_that_repeats_no_completed_call(folder: Path) -> None:
    question = "Who was the harbour master?"
    asking = begin(folder, "ask", str(folder / "story.txt"), "-q", question, delay_s=0.3)
    await until(lambda: len(noted_calls(folder)) >= 4)
    asking.kill()
    asking.communicate()
    job, state = await only_job(folder)
    assert state is JobState.RUNNING
    completed = [key for key, _ in noted_calls(folder)][:-1]
    resumed = begin(folder, "jobs", "resume", job, "--json", delay_s=0.0)
    output, errors = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, errors
    assert json.loads(output)["answer"] == "Ada Quill"
    assert (await only_job(folder))[1] is JobState.COMPLETED
    again = [key for key, process in noted_calls(folder) if process != asking.pid]
    assert set(completed).isdisjoint(again)
