"""What the replicas of the integration tests answer. Runs in their processes; files tell it and the tests apart.

A prompt is [number, ...]: the reply to a good prompt is its number. Every call that begins is noted in `begun`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from pipeline.errors import InternalError
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply, Script, seeded_script

POISON = 666
STALL_ONCE = 777
ENDLESS = 888
LONGEST_TEST_PROMPT = 16


def obedient(folder: str) -> Script:
    """Answer the number after a random delay; `POISON` fails, `ENDLESS` never ends, `STALL_ONCE` stalls one replica."""
    begun = Path(folder) / "begun"
    pipeline = Path(folder) / "pipeline_calls"
    plausible = seeded_script(delay_s=0.1)
    stalled = Path(folder) / "stalled"

    def reply(call: Call, times: int) -> Reply:
        if len(call.prompt.token_ids) > LONGEST_TEST_PROMPT:  # a real prompt of the pipeline
            with pipeline.open("a", encoding="ascii") as file:
                file.write(f"{call.key('')}\n")
            return plausible(call, times)
        number = call.prompt.token_ids[0]
        with begun.open("a", encoding="ascii") as file:
            file.write(f"{number} {os.getpid()} {call.affinity}\n")
        if number == POISON:
            return Reply(error=InternalError("poison"))
        if number == ENDLESS:
            return Reply(stalls=True)
        if number == STALL_ONCE and not stalled.exists():
            stalled.touch()
            return Reply(stalls=True)
        return Reply(text=str(number), delay_s=0.6 if call.on_text else random.uniform(0.0, 0.2))

    return reply


def broken(folder: str) -> Script:
    raise InternalError("the script has no ending")


def one_only(folder: str) -> Script:
    """The first replica starts, and all others fail, as on a machine with a GPU that is broken."""
    try:
        (Path(folder) / "taken").touch(exist_ok=False)
    except FileExistsError:
        raise InternalError("CUDA error: uncorrectable ECC error encountered") from None
    return obedient(folder)
