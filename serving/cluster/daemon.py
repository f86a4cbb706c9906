"""A cluster that outlives the command which started it, so that the next question finds the model loaded.

`up` starts a process of its own, the keeper, which starts the cluster and holds it until `down`. What is running is
written in `cluster.json`; the keeper holds a lock beside it for as long as it lives, so a record without a locked
lock is stale, whatever killed the keeper.

    up ─▶ keeper process ─▶ Ray, replicas        cluster.json, keeper.lock, keeper.log, progress.jsonl
    ask ─▶ find, join ───────────▶ replicas
    down ─▶ SIGTERM to the keeper, then whatever is left of the cluster
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pipeline.dispatch.retry import error_class
from pipeline.errors import LongfoldError, ReplicaUnavailable, SettingInvalid
from serving.cluster.processes import MARK, end_processes
from serving.settings import Settings

if TYPE_CHECKING:
    from serving.cluster.ray_cluster import Auth, Cluster, ReplicaStatus, Report
    from serving.models.dtype import DtypeName
    from serving.replicas.placement import Placement

POLL_S = 0.1
STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What `cluster.json` says about the cluster that is up."""

    address: str
    auth: Auth
    mark: str
    keeper_pid: int
    model_path: str
    model_fingerprint: str
    context_tokens: int
    dtype: DtypeName
    replicas: int
    started_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model of a cluster, as later commands need to know it."""

    model_path: str
    model_fingerprint: str
    context_tokens: int
    dtype: DtypeName


def find(folder: Path) -> ClusterRecord | None:
    """Return the record of the cluster that is up; None if there is none. Imports nothing slow."""
    if not _is_locked(folder):
        return None
    with contextlib.suppress(OSError, ValueError, TypeError):
        return ClusterRecord(**json.loads(_record_file(folder).read_text(encoding="utf-8")))
    return None


def join(record: ClusterRecord, folder: Path) -> Cluster:
    """Connect this process to the cluster that `find` found."""
    from serving.cluster import ray_cluster

    return ray_cluster.join(record.address, folder=folder, auth=record.auth)


def up(placement: Placement, served: Served, *, folder: Path, report: Report, auth: Auth = "token") -> ClusterRecord:
    """Start a cluster that stays, and return when it is ready; the one that is up already if it serves the same.

    Raises `SettingInvalid` if another model is up, and what `cluster.start` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (record := find(folder)) is not None:
        if record.model_fingerprint != served.model_fingerprint or record.context_tokens != served.context_tokens:
            raise SettingInvalid(f"{record.model_path} is up already; `longfold down` first, then start the other.")
        return record
    _clear_stale(folder)
    mark = os.urandom(8).hex()
    keeper = _spawn(_Order(placement=placement, served=served, folder=folder, auth=auth, mark=mark))
    try:
        return _follow(keeper, folder, report)
    except BaseException:
        keeper.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(STOP_S)
        end_processes(mark, wait_s=0.0)
        raise


def down(folder: Path) -> bool:
    """Stop the cluster that is up and return when none of its processes is left; False if there was none."""
    record = find(folder)
    if record is None:
        _clear_stale(folder)
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.keeper_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while _is_locked(folder) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    end_processes(record.mark, wait_s=1.0)
    _record_file(folder).unlink(missing_ok=True)
    return True


def status(folder: Path) -> tuple[ClusterRecord, list[ReplicaStatus]] | None:
    """Return the record and each replica's own figures; None if nothing is up. Leaves this process unconnected."""
    if (record := find(folder)) is None:
        return None
    from serving.cluster import ray_cluster

    joined = join(record, folder)
    try:
        return record, ray_cluster.replica_statuses()
    finally:
        joined.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the keeper is told, over its standard input."""

    placement: Placement
    served: Served
    folder: Path
    auth: Auth
    mark: str


def _spawn(order: _Order) -> subprocess.Popen[bytes]:
    _progress_file(order.folder).unlink(missing_ok=True)
    with (order.folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-c", "from serving.cluster.daemon import keep; keep()"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[2],
            env=os.environ | {MARK: order.mark},
            start_new_session=True,  # a Ctrl-C for the command is not for the keeper
        )
    assert keeper.stdin is not None
    with contextlib.suppress(BrokenPipeError), keeper.stdin as pipe:
        pipe.write(pickle.dumps(order))
    return keeper


def _follow(keeper: subprocess.Popen[bytes], folder: Path, report: Report) -> ClusterRecord:
    """Pass on what the keeper reports until it is ready. Raises its error, under its own class."""
    read = 0
    while True:
        ended = keeper.poll() is not None
        lines = list(_progress(folder))
        for line in lines[read:]:
            if "failed" in line:
                raise error_class(line["failed"])(line["message"])
            report(line["doing"])
        read = len(lines)
        if (record := find(folder)) is not None and record.keeper_pid == keeper.pid:
            return record
        if ended:
            raise ReplicaUnavailable(f"The cluster's keeper ended; {folder / 'keeper.log'} says why.")
        time.sleep(POLL_S)


def _progress(folder: Path) -> Iterator[Mapping[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        for line in _progress_file(folder).read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def keep() -> NoReturn:
    """The keeper's life, in a process of its own; `up` tells it what to keep over standard input."""
    from serving.cluster import ray_cluster

    order: _Order = pickle.load(sys.stdin.buffer)  # noqa: S301  from our own parent, over a pipe

    def report(**line: str) -> None:
        with _progress_file(order.folder).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    with _lock_file(order.folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            started = ray_cluster.start(
                order.placement,
                folder=order.folder,
                report=lambda text: report(doing=text),
                auth=order.auth,
                mark=order.mark,
            )
        except LongfoldError as error:
            report(failed=type(error).__name__, message=str(error))
            raise SystemExit(1) from error
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            _write_record(order, started)
            while ray_cluster.is_alive():
                time.sleep(5.0)
        finally:
            started.stop()
            _record_file(order.folder).unlink(missing_ok=True)
    raise SystemExit(1)


def _write_record(order: _Order, started: Cluster) -> None:
    record = ClusterRecord(
        address=started.address,
        auth=order.auth,
        mark=order.mark,
        keeper_pid=os.getpid(),
        replicas=started.replicas,
        started_unix_s=time.time(),
        **asdict(order.served),
    )
    path = _record_file(order.folder)
    path.with_suffix(".new").write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")
    path.with_suffix(".new").replace(path)


def _clear_stale(folder: Path) -> None:
    """After a keeper that was killed: end what it left behind, forget its record."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        end_processes(json.loads(_record_file(folder).read_text(encoding="utf-8"))["mark"], wait_s=0.0)
        _record_file(folder).unlink()


def _is_locked(folder: Path) -> bool:
    try:
        with _lock_file(folder).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _record_file(folder: Path) -> Path:
    return folder / "cluster.json"


def _lock_file(folder: Path) -> Path:
    return folder / "keeper.lock"


def _progress_file(folder: Path) -> Path:
    return folder / "progress.jsonl"


def cluster_folder(settings: Settings) -> Path:
    """Where `longfold up` keeps its cluster's record: one per user and cache folder, its path short for sockets."""
    name = hashlib.sha256(str(settings.cache_dir.absolute()).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"longfold-{os.getuid()}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise SettingInvalid(f"{folder} belongs to someone else; set TMPDIR to a folder of your own.")
    return folder
