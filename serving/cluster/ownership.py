"""The cluster of `longfold serve`: the one that is up, or one that it has kept for itself and ends in the end.

Whose a kept cluster is, a file beside its record says: it names the server's process. Without that file it is the
user's own (`longfold up`), and nobody else ends it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from serving.cluster import daemon
from serving.cluster.daemon import cluster_folder
from serving.models.profile import ModelProfile
from serving.replicas.placement import place_model
from serving.settings import Settings

if TYPE_CHECKING:
    from serving.cluster.ray_cluster import Report


def start(settings: Settings, profile: ModelProfile, *, report: Report, server_pid: int = 0) -> None:
    """Return when a cluster is up that serves the model; one that is started here belongs to `server_pid`.

    Raises `SettingInvalid` if another model is up, and what starting a cluster raises.
    """
    folder = cluster_folder(settings)
    if daemon.find(folder) is None:
        _owner_file(folder).unlink(missing_ok=True)
        if server_pid:  # before the start: a runner that is killed while the model loads leaves its keeper behind
            _owner_file(folder).write_text(str(server_pid), encoding="ascii")
    served = daemon.Served(
        model_path=str(profile.path),
        model_fingerprint=profile.fingerprint,
        context_tokens=profile.context_tokens,
        dtype=profile.dtype.name,
    )
    daemon.up(place_model(settings, profile), served, folder=folder, report=report, auth=settings.ray_auth)


def take_over(settings: Settings, server_pid: int) -> None:
    """Take over the cluster of a server that died without ending it."""
    folder = cluster_folder(settings)
    owner = _owner(folder)
    if owner and not psutil.pid_exists(owner):
        _owner_file(folder).write_text(str(server_pid), encoding="ascii")


def release_to_user(settings: Settings) -> None:
    """From now on the cluster stays until `longfold down`."""
    _owner_file(cluster_folder(settings)).unlink(missing_ok=True)


def stop(settings: Settings, server_pid: int) -> None:
    """End the cluster if it is this server's."""
    folder = cluster_folder(settings)
    if _owner(folder) == server_pid:
        daemon.down(folder)
        _owner_file(folder).unlink(missing_ok=True)


def _owner(folder: Path) -> int:
    """Zero if it is the user's."""
    with suppress(OSError, ValueError):
        return int(_owner_file(folder).read_text(encoding="ascii"))
    return 0


def _owner_file(folder: Path) -> Path:
    return folder / "server.pid"
