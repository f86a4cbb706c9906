"""Where everything is put together: settings → model → cluster → dispatcher → answers.

A session keeps one model reachable for as many questions as are asked. It uses the cluster that is up (`longfold up`)
or named by address, if that serves the same model, and else starts one of its own and ends it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import front_door
from pipeline.dispatch.admission import AdmissionQueue
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.errors import OutOfMemory, ReplicaUnavailable, SettingInvalid
from pipeline.findings.answer import Answer
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Call, Dispatcher, Outcome
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.checkpoints import StepOptions
from pipeline.run.events import Event, Warned
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.state import RunState
from pipeline.run.strategy import Resources
from serving.cluster import daemon
from serving.cluster.daemon import cluster_folder
from serving.machine import machine_name
from serving.models.catalogue import default_model, read_catalogue
from serving.models.profile import ModelProfile, load_profile
from serving.models.pull import pull_model
from serving.settings import Settings

if TYPE_CHECKING:  # importing Ray takes a second
    from serving.cluster.ray_cluster import Cluster

Report = Callable[[str], None]

DEFAULT_CHUNK_TOKENS = 2000
"""For a model that was never measured; small models read 2,000 to 3,000 tokens best (docs/experiments.md)."""
_MIN_TOKENS = 4096
"""A run that computed less says nothing about speed."""


@dataclass(frozen=True)
class OpenModel:
    """A model on this machine: enough to plan with; no engine runs."""

    profile: ModelProfile

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_directory(self.profile.path)

    def resources(self, dispatcher: Dispatcher, emit: Callable[[Event], None] = lambda _: None) -> Resources:
        profile = self.profile
        return Resources(
            tokenizer=self.tokenizer,
            budget=TokenBudget(profile.context_tokens),
            dispatcher=dispatcher,
            chunk_tokens=profile.chunk_tokens or DEFAULT_CHUNK_TOKENS,
            gate=profile.gate,
            calibration=profile.calibration,
            tasks_without_rationale=profile.tasks_without_rationale,
            emit=emit,
        )

    def namespace(self, owner: str) -> str:
        """Of its completions in the journal: those of `owner`, or those that all share."""
        fingerprint = self.profile.fingerprint
        return f"{fingerprint}\0{owner}" if owner else fingerprint

    def plan(self, document: Document, request: Request) -> Plan:
        return front_door.plan(document, request, self.resources(_Nothing()))


class _Nothing:
    """The dispatcher of a plan: planning makes no call."""

    window = 1

    async def complete(self, call: Call) -> Outcome:  # noqa: ARG002
        raise AssertionError("a plan makes no call")


@dataclass(frozen=True, kw_only=True)
class Session:
    """A model that is being served, and the journal of what it completed."""

    model: OpenModel
    dispatcher: Dispatcher
    journal: Journal
    speeds: SpeedBook

    @cached_property
    def admission(self) -> AdmissionQueue:
        """Of all runs of this session."""
        return AdmissionQueue(slots=self.dispatcher.window)

    async def ask(
        self,
        document: Document,
        request: Request,
        emit: Callable[[Event], None] = lambda _: None,
        *,
        fresh: bool = False,
        owner: str = "",
        run_id: str = "",
        steps: StepOptions = StepOptions(),  # noqa: B008  # it is frozen
    ) -> Answer:
        """Answer; with `fresh`, nothing is taken from the journal and nothing is put into it.

        Completions are shared with the runs of the same `owner` only. A run that is resumed under its `run_id` counts
        what it paid for before as its own. Raises RunPaused where `steps` asks for it.
        """
        state = RunState()
        warm: tuple[float, int] | None = None  # when the first computed call ended, and the tokens until then

        def feed(event: Event) -> None:
            nonlocal warm
            state.apply(event)
            if warm is None and (tokens := state.computed_tokens):
                warm = state.elapsed_s, tokens
            emit(event)

        dispatcher = self.dispatcher if fresh else self.journaled(owner=owner, run_id=run_id, emit=feed)
        with self.speeds.watch() as watched:
            resources = replace(self.model.resources(dispatcher, feed), steps=steps)
            answer = await front_door.ask(document, request, resources)
        # The first call may have warmed the engine up: what came before its end says nothing about the speed.
        since_s, before_tokens = warm or (0.0, 0)
        computed = state.computed_tokens - before_tokens
        if computed >= _MIN_TOKENS and watched.alone:
            self.speeds.note(self.model.profile.fingerprint, computed / max(state.elapsed_s - since_s, 1e-3))
        return answer

    def journaled(self, *, owner: str, run_id: str, emit: Callable[[Event], None]) -> JournaledDispatcher:
        """The dispatcher of one run, which takes from the journal what `owner` has paid for."""

        def warn(text: str) -> None:
            emit(Warned(message=text))

        namespace = self.model.namespace(owner)
        return JournaledDispatcher(
            self.dispatcher, self.journal, namespace, run_id=run_id, admission=self.admission, on_wait=warn
        )


@contextmanager
def open_session(settings: Settings, model: OpenModel, report: Report) -> Iterator[Session]:
    """Reach or start a cluster for `model`; what was started is stopped when the context ends."""
    with open_journal(settings) as journal, _reach_cluster(settings, model.profile, report) as cluster:
        yield Session(
            model=model,
            dispatcher=cluster.dispatcher(),
            journal=journal,
            speeds=SpeedBook(settings.cache_dir),
        )


def resolve_model(settings: Settings, report: Report) -> OpenModel:
    """The model that the settings name, pulled if need be; without a name the one that is up, else the default."""
    up = daemon.find(cluster_folder(settings))
    if not settings.model and not settings.ray_address and up is not None:
        return OpenModel(load_profile(Path(up.model_path), context_tokens=up.context_tokens, dtype=up.dtype))
    path = pull_model(settings.model or default_model(), cache_dir=settings.cache_dir, report=report)
    return OpenModel(load_profile(path, context_tokens=settings.context_tokens, dtype=settings.dtype))


def describe_model(settings: Settings, model: OpenModel) -> str:
    """Which model answers, and how to name a better one if nobody chose it."""
    entry = read_catalogue().get(model.profile.name)
    about = f": {entry.description}" if entry else ""
    hint = "" if settings.model else " Name another with --model (`longfold models list`)."
    return f"Model: {model.profile.name}{about}{hint}\nServed in {model.profile.dtype}."


@contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """The calls and runs that this machine's commands keep."""
    journal = Journal(settings.cache_dir / "journal.sqlite")
    try:
        yield journal
    finally:
        journal.close()


@contextmanager
def _reach_cluster(settings: Settings, profile: ModelProfile, report: Report) -> Iterator[Cluster]:
    running = _join_cluster(settings, profile, report)
    if running is not None:
        try:
            yield running
        finally:
            running.stop()
        return
    from serving.cluster import ray_cluster as cluster
    from serving.replicas.placement import place_model

    with tempfile.TemporaryDirectory(prefix="lf", ignore_cleanup_errors=True) as folder:
        placement = place_model(settings, profile)
        try:
            running = cluster.start(placement, folder=Path(folder), report=report, auth=settings.ray_auth)
        except (OutOfMemory, ReplicaUnavailable) as error:
            kept = cluster.keep_logs(Path(folder), settings.cache_dir / "failed-start")
            raise type(error)(f"{error} The logs are kept in {kept}.") from error
        try:
            yield running
        finally:
            running.stop()


def _join_cluster(settings: Settings, profile: ModelProfile, report: Report) -> Cluster | None:
    """The cluster that was named, or the one that is up if it serves this model in this way."""
    if settings.ray_address:
        from serving.cluster import ray_cluster as cluster

        report(f"joining the cluster at {settings.ray_address}")
        running = cluster.join(settings.ray_address, auth=settings.ray_auth)
        try:
            check_served(profile, [status.stats for status in cluster.replica_statuses() if status.stats])
        except SettingInvalid:
            running.stop()
            raise
        return running
    folder = cluster_folder(settings)
    up = daemon.find(folder)
    if up is None:
        return None
    if up.model_fingerprint != profile.fingerprint or up.context_tokens != profile.context_tokens:
        report(f"the cluster that is up serves {Path(up.model_path).name}; starting another")
        return None
    report("joining the cluster that is up")
    return daemon.join(up, folder)


def check_served(profile: ModelProfile, replicas: Sequence[Mapping[str, Any]]) -> None:
    """Raise SettingInvalid if replicas serve another model than this: they would be given another's token ids."""
    for stats in replicas:
        if stats["fingerprint"] and stats["fingerprint"] != profile.fingerprint:
            raise SettingInvalid(
                f"The cluster serves {stats['model']}, and {profile.name} in {profile.dtype.name} was asked for. Name "
                "the model that it serves (LONGFOLD_MODEL, LONGFOLD_DTYPE), or another cluster (LONGFOLD_RAY_ADDRESS)."
            )


@dataclass(slots=True)
class _Watched:
    """A run while it lasts."""

    alone: bool
    """False once another ran beside it: its speed is then not the machine's."""


class SpeedBook:
    """Tokens per second of whole runs, as last measured, by model, number format and machine.

    The cache folder may come from another machine, in an image or over the network. Losing it costs an estimate.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._path = cache_dir / "speeds.json"
        self._machine = machine_name()
        self._running: list[_Watched] = []

    @contextmanager
    def watch(self) -> Iterator[_Watched]:
        """Watch over a run, whether it has the machine to itself as far as this process knows."""
        watched = _Watched(alone=not self._running)
        for other in self._running:
            other.alone = False
        self._running.append(watched)
        try:
            yield watched
        finally:
            self._running.remove(watched)

    def find(self, fingerprint: str) -> float | None:
        """Computed tokens per second of the last run of this model, if there was one."""
        try:
            return float(json.loads(self._path.read_text(encoding="utf-8"))[self._key(fingerprint)])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _key(self, fingerprint: str) -> str:
        return f"{fingerprint} on {self._machine}"

    def note(self, fingerprint: str, tokens_per_s: float) -> None:
        known: dict[str, float] = {}
        with suppress(OSError, ValueError):
            known = dict(json.loads(self._path.read_text(encoding="utf-8")))
        known[self._key(fingerprint)] = round(tokens_per_s, 1)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_suffix(f".{os.getpid()}")  # whoever reads sees a whole file, whoever else writes
            new.write_text(json.dumps(known), encoding="utf-8")
            new.replace(self._path)
