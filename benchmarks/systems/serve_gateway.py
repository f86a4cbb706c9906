"""A gateway for the model of a suite: the whole service for a real model, the scripted service for the scripted one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.systems.gateway import GatewayProcess, run_gateway
from benchmarks.systems.model import BenchModel
from benchmarks.systems.scripted_service import scripted_service

_PASSED_ON = ("kv_cache_gib", "replicas", "tensor_parallel", "ray_address", "ray_auth")
"""Settings of the one who measures that say how the model is served."""


@contextmanager
def serve_gateway(model: BenchModel, folder: Path, **settings: Any) -> Iterator[GatewayProcess]:
    """The real thing: gateway, runner, Ray and engine, with an empty journal. The scripted model has no Ray."""
    settings |= {"context_tokens": model.context_tokens}
    if model.opened is None:
        with scripted_service(folder, **settings) as service:
            yield service
        return
    settings |= {name: getattr(model.settings, name) for name in _PASSED_ON}
    command = [sys.executable, "-m", "serving", "serve"]
    with run_gateway(command, folder, model=model.opened.profile.path, **settings) as gateway:
        yield gateway
