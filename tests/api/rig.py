"""A gateway's insides in a folder: database, files, and a runner on a scripted model; no Ray, no engine.

python -m tests.api.rig FOLDER [OPTIONS]     a runner of its own process, to be killed or stopped; OPTIONS is JSON
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from pipeline.dispatch.retry import RetryPolicy
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from serving.jobs.job import TERMINAL, Job, JobRequest, Lane, NewJob
from serving.jobs.runner import JobRunner, Pace
from serving.jobs.runner_process import beating, until_ended
from serving.jobs.store import JobStore
from serving.models.profile import load_profile
from serving.session import OpenModel, Session, SpeedBook
from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.migrate import prepare_database
from tests.factories import make_tokenizer, reading_script
from tests.tiny_model import make_chat_model

OWNER = "team"
QUESTION = "Who was the harbour master?"
FACT = "The harbour master was Ada Quill."
FILLER = "The harbour was quiet that morning and the boats lay still. " * 8
QUICK = Pace(poll_s=0.01, look_s=0.1, listen_s=0.05, beat_s=0.1, lease_s=2.0)
MAX_CALLS = 4
"""In flight at once in a runner of its own process."""


def story(paragraphs: int = 60, fact_at: int = 40) -> str:
    """A document of several chunks; one holds what `QUESTION` asks for."""
    return "\n\n".join(f"Section {i}. {FILLER}{FACT if i == fact_at else ''}" for i in range(paragraphs))


def reader() -> Script:
    """A model that reads: it finds `FACT` where it is."""
    return reading_script(make_tokenizer(), [(FACT, "Ada Quill")])


@dataclass(frozen=True)
class Rig:
    """One installation. Its model folder and its journal are shared with runners in other processes."""

    folder: Path
    database: Database
    store: JobStore
    files: FileStore
    model: OpenModel

    @classmethod
    async def open(cls, folder: Path) -> Rig:
        database = Database.open(f"sqlite:///{folder}/longfold.sqlite")
        await prepare_database(database)
        model_folder = folder / "model"
        if not model_folder.exists():
            make_chat_model(model_folder)
        return cls(
            folder=folder,
            database=database,
            store=JobStore(database),
            files=FileStore(database, folder / "files", max_bytes=1 << 20),
            model=OpenModel(load_profile(model_folder)),
        )

    def session(self, model: ScriptedModel, **options: Any) -> Session:
        return Session(
            model=self.model,
            dispatcher=InlineDispatcher(model, retry=RetryPolicy(first_wait_s=0.01, longest_wait_s=0.05), **options),
            journal=Journal(self.folder / "journal.sqlite"),
            speeds=SpeedBook(self.folder),
        )

    def runner(self, model: ScriptedModel, *, pace: Pace = QUICK, **options: Any) -> JobRunner:
        return JobRunner(self.store, self.files, self.session(model), pace=pace, **options)

    async def submit(self, text: str = "", *, lane: Lane = Lane.LONG, **fields: Any) -> Job:
        """A job on `text`, or with the given fields of its request."""
        if text:
            fields["documents"] = (await self.files.add_text(OWNER, text, "story.txt"),)
        request = JobRequest(**({"question": QUESTION} | fields))
        job, _ = await self.store.submit(
            NewJob(owner=OWNER, key_id="", surface="job", request=request, lane=lane, reserve_tokens=0)
        )
        return job

    async def find(self, job: Job) -> Job:
        found = await self.store.find(job.id, OWNER)
        assert found is not None
        return found

    async def ended(self, job: Job, *, within_s: float = 90.0) -> Job:
        """The job once it has ended."""
        return await self.reaches(job, lambda found: found.state in TERMINAL, within_s=within_s)

    async def reaches(self, job: Job, condition: Callable[[Job], bool], *, within_s: float = 90.0) -> Job:
        async with asyncio.timeout(within_s):
            while not condition(found := await self.find(job)):
                await asyncio.sleep(0.02)
        return found


async def until(condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = 90.0) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(within_s):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.02)


def noting(script: Script, folder: Path, *, delay_s: float) -> Script:
    """`script`, slower, and with every call noted in a file that outlives the process."""
    path = folder / "calls"

    def noted(call: Call, times: int) -> Reply:
        with path.open("a", encoding="ascii") as file:
            file.write(f"{call.key('')} {os.getpid()}\n")
        reply = script(call, times)
        return Reply(text=reply.text, choice_logprobs=reply.choice_logprobs, delay_s=delay_s)

    return noted


def noted_calls(folder: Path) -> list[tuple[str, int]]:
    """Key and process of every call that began."""
    path = folder / "calls"
    lines = path.read_text("ascii").splitlines() if path.exists() else []
    return [(key, int(pid)) for key, pid in (line.split() for line in lines)]


async def _run(
    folder: Path, delay_s: float, dies_on_claim: bool, parent_pid: int, lease_s: float, beat_fd: int
) -> None:
    rig = await Rig.open(folder)
    model = ScriptedModel(noting(reader(), folder, delay_s=delay_s))
    session = rig.session(model, max_calls=MAX_CALLS)
    runner = JobRunner(rig.store, rig.files, session, pace=replace(QUICK, lease_s=lease_s))
    if dies_on_claim:
        model.script = lambda call, times: os._exit(1)
    (folder / f"runner-{os.getpid()}").write_text(str(time.time()))
    async with beating(beat_fd, runner.runner_id):
        await until_ended(runner.run(), parent_pid=parent_pid)
    await rig.database.close()


def main() -> None:
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    asyncio.run(
        _run(
            Path(sys.argv[1]),
            options.get("delay_s", 0.02),
            options.get("dies_on_claim", False),
            options.get("parent_pid", 0),
            options.get("lease_s", QUICK.lease_s),
            int(sys.argv[4]) if sys.argv[3:4] == ["--beat-fd"] else -1,
        )
    )


if __name__ == "__main__":
    main()
