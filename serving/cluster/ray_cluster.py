"""Ray and its replicas: start or join a cluster, deploy, watch, stop.

A cluster is disposable: it holds no state that a run needs. One that this process starts ends with it;
`serving/cluster/daemon.py` keeps one for later processes to join.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from ray import serve
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.serve.config import RequestRouterConfig
from ray.serve.schema import ApplicationStatus, LoggingConfig

from pipeline.dispatch.ray_tasks import CALLS_PER_REPLICA, TASK_CPUS, RayTaskDispatcher, ReplicaAddress
from pipeline.dispatch.retry import RetryPolicy
from pipeline.errors import OutOfMemory, ReplicaUnavailable
from serving.cluster.processes import MARK, end_processes
from serving.machine import cpu_count
from serving.replicas.engine import Engine
from serving.replicas.placement import SOURCE_ROOT, Placement

APP = "longfold"
DEPLOYMENT = "engine"
NAMESPACE = "longfold"
OBJECT_STORE_BYTES = 256 << 20
"""Calls and completions are kilobytes; Ray's own default is a third of the memory."""
TASK_SLOTS = 4
"""Of each replica, in tasks of half a CPU: batches of gate and map calls, two of each."""
SPARE_CPUS = 1
"""In Ray's books beside the replicas and their batches: two urgent tasks."""
READY_S = 1800.0
MORE_S = 5.0
"""Where a replica has failed to start and another is ready, the rest has as long again, and so much longer."""

Auth = Literal["token", "disabled"]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster that this process is connected to."""

    address: str
    """Where another process on this machine joins it."""
    replicas: int
    mark: str = ""
    """How its processes are found, if this process started it; empty if it joined."""

    def dispatcher(
        self, *, calls_per_replica: int | None = None, retry: RetryPolicy | None = None
    ) -> RayTaskDispatcher:
        """With as many calls at a replica as its engine computes at once, and as many waiting for it."""
        if calls_per_replica is None:
            capacities = [status.stats["capacity"] for status in replica_statuses() if status.stats]
            calls_per_replica = 2 * min(capacities) if capacities else CALLS_PER_REPLICA
        return RayTaskDispatcher(
            ReplicaAddress(app=APP, deployment=DEPLOYMENT),
            replicas=self.replicas,
            calls_per_replica=calls_per_replica,
            retry=retry,
        )

    def stop(self) -> None:
        """Disconnect; if this process started the cluster, return when none of its processes is left."""
        ray.shutdown()
        if self.mark:
            end_processes(self.mark)
            os.environ.pop(MARK, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica as it reports itself; `stats` is empty if it does not answer."""

    name: str
    stats: Mapping[str, Any]


def start(
    placement: Placement,
    *,
    folder: Path,
    report: Report,
    auth: Auth = "token",
    dashboard: bool = False,
    mark: str = "",
) -> Cluster:
    """Start Ray on this machine and deploy the replicas; return when they have proven that they generate.

    `folder` takes the token and Ray's session files; its path must be short, since Ray puts sockets there.
    Raises `OutOfMemory` or `ReplicaUnavailable` with the engine's own last words, and leaves no process.
    """
    report("starting Ray")
    mark = mark or secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    _set_environment(_ray_environment(auth, folder) | {MARK: mark})
    try:
        address = _start_ray(placement, folder=folder, dashboard=dashboard)
        replicas = deploy(placement, report=report)
    except BaseException:
        ray.shutdown()
        end_processes(mark, wait_s=1.0)
        raise
    return Cluster(address=address, replicas=replicas, mark=mark)


def deploy_on(
    address: str, place: Callable[[Sequence[int]], Placement], *, report: Report, auth: Auth = "token"
) -> Cluster:
    """Deploy replicas on a Ray cluster that is there, on all its nodes; they stay when this process leaves.

    `place` gets the number of GPUs of each node. Source, environment and model must be at the same paths on every node.
    Raises `ReplicaUnavailable` when no cluster answers, or no replica starts.
    """
    _connect(address, folder=None, auth=auth)
    try:
        placement = place([int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]])
        replicas = deploy(placement, report=report)
    except BaseException:
        ray.shutdown()
        raise
    return Cluster(address=address, replicas=replicas)


def remove(address: str, *, auth: Auth = "token") -> bool:
    """Take the replicas from a Ray cluster, which itself stays; False if there were none."""
    _connect(address, folder=None, auth=auth)
    try:
        if APP not in serve.status().applications:
            return False
        serve.delete(APP)
        return True
    finally:
        ray.shutdown()


def _connect(address: str, *, folder: Path | None, auth: Auth) -> None:
    _set_environment(_ray_environment(auth, folder))
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ray.exceptions.RayError) as error:
        ray.shutdown()
        raise ReplicaUnavailable(f"No Ray cluster answers at {address}: {error}") from error


def keep_logs(folder: Path, target: Path) -> Path:
    """Copy the logs of a cluster in `folder` that did not start to `target`, in the place of older ones."""
    shutil.rmtree(target, ignore_errors=True)
    logs = folder / "ray" / "session_latest" / "logs"
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(logs, target, ignore=shutil.ignore_patterns("*.sock", "events", "export_events"))
    return target


def join(address: str, *, folder: Path | None = None, auth: Auth = "token") -> Cluster:
    """Connect to a cluster with replicas. `folder` is the one it was started with, which has its token.

    None: the token is where Ray itself looks for it (`RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH`, the home folder).
    Raises `ReplicaUnavailable` when nothing is there.
    """
    _connect(address, folder=folder, auth=auth)
    try:
        state = serve.status().applications[APP].deployments[DEPLOYMENT].replica_states
    except (KeyError, ray.exceptions.RayError) as error:
        ray.shutdown()
        raise ReplicaUnavailable(f"No Longfold cluster answers at {address}: {error}") from error
    return Cluster(address=address, replicas=max(1, _running(state)))


def deploy(placement: Placement, *, report: Report) -> int:
    """Deploy the replicas on the cluster that this process is connected to; return how many are ready.

    Raises ReplicaUnavailable at once where the cluster has not GPUs enough, and else when none of them starts.
    """
    gpus = ray.cluster_resources().get("GPU", 0.0)
    if placement.num_gpus and gpus < placement.num_gpus * placement.replicas:
        raise ReplicaUnavailable(
            f"{placement.replicas} replicas need {placement.num_gpus * placement.replicas:.0f} GPUs, and Ray has "
            f"{gpus:.0f} here; look at CUDA_VISIBLE_DEVICES and at `nvidia-smi`."
        )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    serve.start(proxy_location="Disabled", logging_config=quiet)
    report(f"loading the model in {placement.replicas} replica{'s' if placement.replicas > 1 else ''}")
    router = (
        {"request_router_config": RequestRouterConfig(request_router_class="serving.replicas.router:AffinityRouter")}
        if placement.replicas > 1
        else {}  # with one replica there is nothing to choose
    )
    engine = serve.deployment(
        Engine,
        name=DEPLOYMENT,
        num_replicas=placement.replicas,
        ray_actor_options={
            "num_cpus": placement.num_cpus,
            "num_gpus": placement.num_gpus,
            "runtime_env": {"env_vars": dict(placement.environment)},
        },
        # The dispatcher bounds what is in flight; a limit here would only refuse bursts to an idle replica.
        max_ongoing_requests=100_000,
        max_queued_requests=-1,
        health_check_period_s=placement.health_period_s,
        health_check_timeout_s=placement.health_timeout_s,
        graceful_shutdown_timeout_s=5.0,
        graceful_shutdown_wait_loop_s=0.2,
        max_constructor_retry_count=1,
        logging_config=quiet,
        **router,
    )
    serve.run_many(
        [serve.RunTarget(target=engine.bind(placement.spec), name=APP, route_prefix=None)],
        wait_for_ingress_deployment_creation=False,
        wait_for_applications_running=False,
    )
    return _wait_until_ready(placement.replicas, report)


def _start_ray(placement: Placement, *, folder: Path, dashboard: bool) -> str:
    """Return the new cluster's address."""
    reserved = int(placement.replicas * (placement.num_cpus + TASK_SLOTS * TASK_CPUS)) + SPARE_CPUS
    try:
        context = ray.init(
            address="local",
            num_cpus=max(cpu_count(), reserved),
            include_dashboard=dashboard,
            object_store_memory=OBJECT_STORE_BYTES,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(folder / "ray"),
        )
    except Exception as error:  # Ray raises bare exceptions here, as when a busy machine exceeds its 30 s
        raise ReplicaUnavailable(f"Ray did not start: {error}") from error
    return str(context.address_info["address"])


def is_alive() -> bool:
    """Whether the cluster still answers this process."""
    try:
        return ray.is_initialized() and bool(ray.nodes())
    except (ray.exceptions.RayError, RuntimeError):
        return False


def replica_statuses() -> list[ReplicaStatus]:
    """Ask every replica for its figures (the fields of `ReplicaStats`)."""
    names = [
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["name"].startswith(f"SERVE_REPLICA::{APP}#{DEPLOYMENT}#")
    ]
    asked = [(name, _ask(name)) for name in sorted(names)]
    return [ReplicaStatus(name=name.rpartition("#")[2], stats=stats) for name, stats in asked]


def _ask(name: str) -> Mapping[str, Any]:
    try:
        actor = ray.get_actor(name, namespace="serve")
        stats: Mapping[str, Any] = ray.get(actor.record_routing_stats.remote(), timeout=10.0)
    except (ray.exceptions.RayError, ValueError):
        return {}
    return stats


def _wait_until_ready(wanted: int, report: Report) -> int:
    """Return how many replicas are ready. Where some are and the others cannot start, those are what there is."""
    started = time.monotonic()
    told_s = first_s = 0.0
    while (elapsed_s := time.monotonic() - started) < READY_S:
        app = serve.status().applications[APP]
        deployment = app.deployments.get(DEPLOYMENT)
        running = _running(deployment.replica_states) if deployment else 0
        if app.status == ApplicationStatus.RUNNING:
            report(f"ready after {elapsed_s:.0f} s")
            return wanted
        message = deployment.message if deployment else app.message
        if app.status in {ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY} and not running:
            raise _start_error(message)
        first_s = first_s or (elapsed_s if running else 0.0)
        if running and message and elapsed_s > 2 * first_s + MORE_S:
            error = _start_error(message)
            report(f"{running} of {wanted} replicas are ready; Ray goes on trying to start the others. {error}")
            return running
        if elapsed_s - told_s >= 5.0:
            told_s = elapsed_s
            ready = f", {running} of {wanted} replicas are ready" if wanted > 1 else ""
            report(f"loading the model, {elapsed_s:.0f} s{ready}")
        time.sleep(0.1)
    raise ReplicaUnavailable(f"The replicas were not ready after {READY_S:.0f} s.")


def _running(states: Mapping[Any, int]) -> int:
    """Of the replicas, by Serve's states."""
    return sum(count for state, count in states.items() if str(getattr(state, "value", state)) == "RUNNING")


def _start_error(message: str) -> Exception:
    """The last line of the engine's traceback is the one that says why."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    words = [line for line in lines if "Error" in line or "Exception" in line or "pipeline.errors" in line]
    reason = (words or lines or ["no message"])[-1].removeprefix("pipeline.errors.")
    kind = OutOfMemory if "memory" in reason.lower() else ReplicaUnavailable
    return kind(f"The replica did not start: {reason}")


def _set_environment(environment: Mapping[str, str]) -> None:
    """Ray reads its settings when it is imported; this makes it read them again, as Ray does for its own defaults."""
    os.environ.update(environment)
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _ray_environment(auth: Auth, folder: Path | None) -> dict[str, str]:
    """Must be in place before Ray is; every process that Ray starts inherits it."""
    environment = {
        "RAY_AUTH_MODE": auth,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray's 15 lets any other program starve the engine
        # What Ray does when nothing happens: together a twentieth of a two-core machine at its own settings.
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
        "RAY_task_events_report_interval_ms": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # A replica in the middle of an engine step may take longer than Ray's tenth of a second to answer.
        "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "2.0",
        "PYTHONPATH": _python_path(),
    }
    if auth == "token" and folder is not None:
        environment["RAY_AUTH_TOKEN_PATH"] = str(_token_file(folder))
    return environment


def _python_path() -> str:
    """Where Ray's workers find our packages, installed or not."""
    known = os.environ.get("PYTHONPATH", "")
    return known if SOURCE_ROOT in known.split(os.pathsep) else os.pathsep.join(filter(None, [SOURCE_ROOT, known]))


def _token_file(folder: Path) -> Path:
    """A token of the cluster's own, readable by its user only; Ray would write one into the home folder."""
    path = folder / "ray_token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
    return path
