"""The commands about machine, models and cluster: what `longfold up | down | status | models | doctor` do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.errors import CallerError, LongfoldError
from pipeline.text import duration
from serving.cli.show.live import make_display
from serving.cluster import daemon, ownership
from serving.cluster.daemon import cluster_folder
from serving.models.catalogue import default_model
from serving.models.check import check_model
from serving.models.check_result import CheckResult, Status, bad, ok
from serving.models.pull import find_model, list_models, pull_model
from serving.replicas.placement import place_model, place_on_nodes
from serving.session import OpenModel, Report, describe_model, open_session, resolve_model
from serving.settings import Settings

if TYPE_CHECKING:  # importing Ray takes a second
    from serving.cluster.ray_cluster import ReplicaStatus

_MARKS = {Status.OK: "ok  ", Status.WARN: "warn", Status.BAD: "BAD "}


def up(settings: Settings) -> None:
    display = make_display(sys.stderr)
    try:
        model = resolve_model(settings, display.report)
        display.say(describe_model(settings, model))
        profile = model.profile
        if settings.ray_address:
            _up_on(settings, model, display.report)
            return
        record = daemon.up(
            place_model(settings, profile),
            daemon.Served(
                model_path=str(profile.path),
                model_fingerprint=profile.fingerprint,
                context_tokens=profile.context_tokens,
                dtype=profile.dtype.name,
            ),
            folder=cluster_folder(settings),
            report=display.report,
            auth=settings.ray_auth,
        )
        ownership.release_to_user(settings)
    finally:
        display.close()
    replicas = f"{record.replicas} replica{'s' if record.replicas > 1 else ''}"
    typer.echo(
        f"{profile.name} is up at {record.address}, {replicas}. `longfold ask` uses it; `longfold down` ends it."
    )


def _up_on(settings: Settings, model: OpenModel, report: Report) -> None:
    """On a Ray cluster that is there, and stays."""
    from serving.cluster import ray_cluster

    running = ray_cluster.deploy_on(
        settings.ray_address,
        lambda gpus_of_nodes: place_on_nodes(settings, model.profile, gpus_of_nodes),
        report=report,
        auth=settings.ray_auth,
    )
    running.stop()
    typer.echo(
        f"{model.profile.name} is up on the Ray cluster at {settings.ray_address}, {running.replicas} "
        f"replica{'s' if running.replicas > 1 else ''}. With the same LONGFOLD_RAY_ADDRESS, commands use it and "
        "`longfold down` takes it away."
    )


def down(settings: Settings) -> None:
    if settings.ray_address:
        from serving.cluster import ray_cluster

        was_up = ray_cluster.remove(settings.ray_address, auth=settings.ray_auth)
        typer.echo("The replicas are gone; the Ray cluster stays." if was_up else "No replicas were there.")
        return
    was_up = daemon.down(cluster_folder(settings))
    typer.echo("The cluster is down." if was_up else "No cluster was up.")


def status(settings: Settings) -> None:
    if settings.ray_address:
        from serving.cluster import ray_cluster

        joined = ray_cluster.join(settings.ray_address, auth=settings.ray_auth)
        try:
            replicas = ray_cluster.replica_statuses()
        finally:
            joined.stop()
        typer.echo(f"Replicas of {next((r.stats['model'] for r in replicas if r.stats), 'a model')} on its nodes")
        for replica in replicas:
            typer.echo(_replica_line(replica))
        return
    found = daemon.status(cluster_folder(settings))
    if found is None:
        typer.echo("No cluster is up; `longfold up` starts one.")
        return
    record, replicas = found
    typer.echo(f"Up for {duration(time.time() - record.started_unix_s)} at {record.address}")
    typer.echo(f"Model {record.model_path}, context {record.context_tokens:,} tokens, served in {record.dtype}")
    for replica in replicas:
        typer.echo(_replica_line(replica))


def list_known_models(settings: Settings) -> None:
    for known in list_models(settings.cache_dir):
        entry = known.entry
        notes = [f"{entry.weights_bytes / 1e9:.1f} GB", entry.licence, f"context {entry.context_tokens:,}"]
        notes += ["default"] if entry.default else []
        notes += ["on this machine" if known.path else "not pulled"]
        typer.echo(f"{entry.name:<22}{', '.join(notes)}\n{'':<22}{entry.description}")
    typer.echo("\nAny model directory, or hub repository as owner/name, can be named as well.")


def pull(name: str, settings: Settings) -> None:
    display = make_display(sys.stderr)
    try:
        path = pull_model(name, cache_dir=settings.cache_dir, report=display.report)
    finally:
        display.close()
    typer.echo(str(path))


def check(path: str, settings: Settings) -> int:
    """Print what was found; the exit code is that of a bad request if the model cannot be used."""
    directory = find_model(path, cache_dir=settings.cache_dir) or Path(path)
    return _print_checks(check_model(directory, context_tokens=settings.context_tokens))


def doctor(settings: Settings, *, canary: bool) -> int:
    """Print every check and how to fix what is wrong."""
    from serving.cli.doctor import run_doctor

    found = find_model(settings.model or default_model(), cache_dir=settings.cache_dir)
    extra = [_canary_check(settings)] if canary and found else []
    results = run_doctor(
        cache_dir=settings.cache_dir,
        model=found,
        context_tokens=settings.context_tokens,
        dtype=settings.dtype,
        extra=extra,
    )
    return _print_checks(results)


def _canary_check(settings: Settings) -> CheckResult:
    """Start what `ask` would start; a replica counts as ready when it has generated something."""
    display = make_display(sys.stderr)
    started_s = time.monotonic()
    try:
        model: OpenModel = resolve_model(settings, display.report)
        with open_session(settings, model, display.report):
            return ok("canary", f"Ray and the model were ready after {duration(time.monotonic() - started_s)}")
    except LongfoldError as error:
        return bad("canary", str(error), "fix what is marked BAD above, or run it again with LONGFOLD_LOG_LEVEL=info")
    finally:
        display.close()


def _print_checks(results: Iterable[CheckResult]) -> int:
    listed = list(results)
    for result in listed:
        fix = f"\n{'':<20}→ {result.fix}" if result.fix else ""
        typer.echo(f"{_MARKS[result.status]} {result.name:<15}{result.detail}{fix}")
    return CallerError.exit_code if any(result.status == Status.BAD for result in listed) else 0


def _replica_line(replica: ReplicaStatus) -> str:
    if not replica.stats:
        return f"Replica {replica.name}: does not answer"
    progress = replica.stats["progress"]
    return (
        f"Replica {replica.name}: up {duration(replica.stats['uptime_s'])}, {progress['running']} calls running, "
        f"{progress['waiting']} waiting, {replica.stats['tokens_per_s']:,.0f} tokens/s, "
        f"KV cache {progress['kv_usage']:.0%} full"
    )
