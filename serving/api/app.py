"""The application: routers, errors, what surrounds each request, and the tasks that live as long as it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib import metadata

from fastapi import APIRouter, FastAPI

from serving.api.clients import ClientTracker
from serving.api.errors import install_error_handlers
from serving.api.gateway import Gateway
from serving.api.middleware import RequestLog
from serving.api.native import jobs, views
from serving.api.openai import chat, files, models, responses
from serving.api.openapi import describe
from serving.api.ops import health, metrics, usage
from serving.api.ops.health import RunnerWatch
from serving.api.ops.metrics import HttpMetrics
from serving.api.pages import serve_pages
from serving.jobs.retention import prune_store

ROUTERS: tuple[APIRouter, ...] = (
    models.router,
    chat.router,
    responses.router,
    jobs.router,
    views.router,
    files.router,
    usage.router,
    health.router,
    metrics.router,
)

_SWEEP_EVERY_S = 3600.0
log = logging.getLogger("longfold.gateway")


def create_app(gateway: Gateway) -> FastAPI:
    """The gateway over HTTP. Its lifespan polls for events; stopping it lets those who wait go."""
    app = FastAPI(
        title="Longfold",
        version=_version(),
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    app.state.runners = RunnerWatch(gateway.store)
    app.state.client_tracker = ClientTracker(gateway)
    app.state.http_metrics = HttpMetrics()
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    serve_pages(app)
    install_error_handlers(app)
    app.add_middleware(RequestLog, observe=app.state.http_metrics.observe)
    return app


def _version() -> str:
    try:
        return metadata.version("longfold")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "0"


def begin_stop(gateway: Gateway) -> None:
    """Take no more jobs and say goodbye on every stream; call it as soon as the process is asked to end."""
    gateway.stopping.set()
    gateway.feed.stop()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = app.state.gateway
    living = (gateway.feed.run(), app.state.runners.run(), app.state.client_tracker.run(), _sweep(gateway))
    tasks = [asyncio.create_task(task) for task in living]
    try:
        yield
    finally:
        begin_stop(gateway)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sweep(gateway: Gateway) -> None:
    """At the start, and now and then, remove what is too old, and what crashes left on the disk."""
    while True:
        try:
            pruned = await prune_store(gateway.store, gateway.files, gateway.settings)
            log.info("store.pruned", extra=asdict(pruned))
        except Exception as error:  # noqa: BLE001  # the next sweep finds what this one did not
            log.warning("store.unpruned", extra={"error": type(error).__name__})
        await asyncio.sleep(_SWEEP_EVERY_S)
