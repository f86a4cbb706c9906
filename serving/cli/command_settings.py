"""The settings that a command runs with."""

from __future__ import annotations

import logging
import sys
from typing import Any

from serving.machine import hide_gpus
from serving.settings import Settings, load_settings


def command_settings(**options: Any) -> Settings:
    """Settings with the command line's `options` first; the log goes to standard error at the level that they name."""
    settings = load_settings(**options)
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    if settings.device == "cpu":
        hide_gpus()
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to debug
    return settings
