"""`longfold serve` as it is, in processes of its own, on a scripted model: gateway, database and runner, no Ray.

python -m benchmarks.systems.scripted_service FOLDER              the gateway, on the settings in the environment
python -m benchmarks.systems.scripted_service FOLDER --runner PID    its child, which that gateway starts

The runner works at the pace of the real one. Only its model is another: it answers at once, in the same process.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.systems.byte_tokenizer import CHAT_TEMPLATE, CONTROL, byte_tokenizer_json
from benchmarks.systems.gateway import GatewayProcess, run_gateway
from benchmarks.systems.model import SCRIPTED
from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from pipeline.llm.scripted import ScriptedModel, seeded_script
from serving.cli.serve import serve
from serving.jobs.job import Lane
from serving.jobs.runner import JobRunner, new_runner_id, new_status
from serving.jobs.runner_process import beating, until_ended
from serving.jobs.store import JobStore
from serving.session import Session, SpeedBook, resolve_model
from serving.settings import Settings, load_settings
from serving.storage.database import Database
from serving.storage.files import FileStore

MODEL_NAME = SCRIPTED
_HOLD = "hold"
"""While a file of this name is in the folder, the runner takes no job."""
_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "max_position_embeddings": 32768,
    "dtype": "bfloat16",
}


def release(service: GatewayProcess) -> None:
    """Let the runner of a service that was started with `hold` begin."""
    (service.folder / _HOLD).unlink(missing_ok=True)


@contextmanager
def scripted_service(folder: Path, *, hold: bool = False, **settings: object) -> Iterator[GatewayProcess]:
    """Serve from `folder` until the context ends; with `hold`, jobs stay in the queue until `release`."""
    write_model(folder / MODEL_NAME)
    if hold:
        (folder / _HOLD).touch()
    command = [sys.executable, "-m", "benchmarks.systems.scripted_service", str(folder)]
    with run_gateway(command, folder, model=folder / MODEL_NAME, **settings) as service:
        yield service


def write_model(folder: Path) -> None:
    """A model directory of a few kilobytes that passes every check: a token per byte, turns, no weights to speak of."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG), "utf-8")
    (folder / "tokenizer.json").write_text(byte_tokenizer_json(CONTROL), "utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")
    data = b"\0" * 64
    head = json.dumps({"w": {"dtype": "BF16", "shape": [32], "data_offsets": [0, len(data)]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)


async def _run(settings: Settings, folder: Path, parent_pid: int, beat_fd: int) -> None:
    model, runner_id = resolve_model(settings, print), new_runner_id()
    async with beating(beat_fd, runner_id):
        while (folder / _HOLD).exists():
            if os.getppid() != parent_pid:
                return
            await asyncio.sleep(0.02)
        database = Database.open(settings.database)
        session = Session(
            model=model,
            dispatcher=InlineDispatcher(ScriptedModel(seeded_script())),
            journal=Journal(settings.cache_dir / "journal.sqlite"),
            speeds=SpeedBook(settings.cache_dir),
        )
        runner = JobRunner(
            JobStore(database),
            FileStore(database, settings.files_dir, max_bytes=settings.max_upload_mib << 20),
            session,
            places={Lane.LONG: settings.long_jobs, Lane.SHORT: settings.short_jobs},
            status=new_status(model.profile, runner_id),
        )
        await until_ended(runner.run(), parent_pid=parent_pid)
        session.journal.close()
        await database.close()


def main() -> None:
    folder = Path(sys.argv[1])
    settings = load_settings()
    if sys.argv[2:3] == ["--runner"]:
        asyncio.run(_run(settings, folder, int(sys.argv[3]), int(sys.argv[5])))
        return
    own = [sys.executable, "-m", "benchmarks.systems.scripted_service", str(folder), "--runner", str(os.getpid())]
    asyncio.run(serve(settings, own, lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
