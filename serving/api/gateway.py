"""What the routes work with, and who is asking."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from serving.api.errors import ApiError, Stopping

if TYPE_CHECKING:
    from serving.api.stream.feed import EventFeed
    from serving.jobs.store import JobStore
    from serving.jobs.supervisor import Supervisor
    from serving.session import OpenModel, SpeedBook
    from serving.settings import Settings
    from serving.storage.files import FileStore, StoredFile
    from serving.storage.keys import ApiKey, KeyStore

ALL_SCOPES = frozenset({"infer", "files", "admin"})


@dataclass(kw_only=True)
class Gateway:
    """One HTTP process. It shares the database and the blobs with the runners, and nothing else."""

    settings: Settings
    store: JobStore
    files: FileStore
    keys: KeyStore
    feed: EventFeed
    model: OpenModel
    speeds: SpeedBook
    loopback_only: bool
    """It can be reached from this machine alone; only then may it be used without a key."""
    runner: Supervisor | None = None
    """Who keeps the runner of this process; None if runners are elsewhere."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process is asked to end: no new job is taken, streams say goodbye."""

    def check_running(self) -> None:
        """Raise Stopping once the process was asked to end."""
        if self.stopping.is_set():
            raise Stopping("The gateway is stopping and takes nothing new; send it again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request comes from."""

    owner: str
    key: ApiKey | None
    scopes: frozenset[str]

    @property
    def key_id(self) -> str:
        return self.key.id if self.key else ""

    def check_model(self, name: str) -> None:
        """Raise if the key is limited to other models. It is told as an unknown one would be."""
        if self.key and self.key.models and name not in self.key.models:
            known = ", ".join(self.key.models)
            raise ApiError(
                404, f"This key cannot use the model {name!r}; it can use {known}.", "model_not_found", "model"
            )


def get_gateway(request: Request) -> Gateway:
    return cast("Gateway", request.app.state.gateway)


CurrentGateway = Annotated[Gateway, Depends(get_gateway)]


async def find_file(gateway: Gateway, principal: Principal, file_id: str, param: str = "file_id") -> StoredFile:
    """Raise ApiError 404 for an id that does not exist or belongs to someone else."""
    stored = await gateway.files.find(file_id, principal.owner)
    if stored is None:
        raise ApiError(404, f"There is no file {file_id[:64]!r}.", "file_not_found", param)
    return stored
