"""What an engine's process says last is what went wrong."""

from __future__ import annotations

import os
from pathlib import Path

from serving.replicas.last_words import LastWords

LOG = """(EngineCore pid=7) INFO 11-23 08:00:00 [core.py:98] Initializing a V1 LLM engine
(EngineCore pid=7) ERROR 11-23 08:00:09 [core.py:843] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-23 08:00:09 [core.py:843]   raise ValueError(
(EngineCore pid=7) ERROR 11-23 08:00:09 [core.py:843] ValueError: Free memory on device is less than desired
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""


def test_the_engines_own_error_is_found_below_the_one_that_says_nothing(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as file:
        file.write("ValueError: of an earlier start\n")
        file.flush()
        words = LastWords(file.fileno())
        assert words.reason() == ""
        file.write(LOG)
        file.flush()
        assert words.reason() == "ValueError: Free memory on device is less than desired"


def test_a_name_with_its_module_is_an_error_too_and_the_last_one_counts(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as file:
        words = LastWords(file.fileno())
        file.write(LOG + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
        file.flush()
        assert words.reason().startswith("torch.OutOfMemoryError: CUDA out of memory")


def test_what_is_no_file_has_no_last_words() -> None:
    reading, writing = os.pipe()
    words = LastWords(writing)
    os.write(writing, b"ValueError: lost\n")
    assert words.reason() == ""
    os.close(reading)
    os.close(writing)
