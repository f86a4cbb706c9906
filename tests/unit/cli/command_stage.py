"""What the commands that ask run on in these tests: a scripted model in place of cluster and engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.llm.scripted import Script, ScriptedModel
from pipeline.llm.tokenizer import Tokenizer
from serving.cli import asking, rehearse_edit
from serving.cli.main import app
from serving.models.dtype import Dtype
from serving.models.profile import Geometry, ModelProfile
from serving.session import OpenModel, Session, SpeedBook
from serving.settings import Settings
from tests.factories import fact_document, make_tokenizer, reading_script

FACT = "The keeper's name is Anna Torv."
GEOMETRY = Geometry(layers=2, heads=2, kv_heads=2, head_dim=8, stored_bytes=2, window_tokens=8192)
PROFILE = ModelProfile(
    path=Path("scripted"),
    name="scripted",
    context_tokens=8192,
    chunk_tokens=800,
    geometry=GEOMETRY,
    dtype=Dtype(name="bfloat16", reason="scripted"),
    weights_bytes=0,
    gate=GateSettings(enabled=True, keep_margin=2.0, keep_at_least=2, clear_score=4.0),
    calibration=Calibration(),
    fingerprint="scripted",
)


class ScriptedOpenModel(OpenModel):
    @property
    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        return make_tokenizer()


@dataclass
class Stage:
    """A scripted model and a document that holds one fact."""

    cache_dir: Path
    document: Path
    script: Script
    model: ScriptedModel | None = None
    opened: int = 0

    def run(self, *arguments: str, stdin: str = "", command: str = "ask") -> Any:
        return CliRunner().invoke(app, [command, *arguments], input=stdin)

    def jobs(self, *arguments: str) -> Any:
        return self.run(*arguments, command="jobs")

    def compare(self, *arguments: str) -> Any:
        """On the stage's document."""
        return self.run(str(self.document), *arguments, command="compare")


def prepare_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The commands find the model without a cluster, and the journal in `tmp_path`."""
    document = tmp_path / "harbour.txt"
    document.write_text(fact_document({7: FACT}, paragraphs=30).text)
    prepared = Stage(
        cache_dir=tmp_path / "cache", document=document, script=reading_script(make_tokenizer(), [(FACT, "Anna Torv")])
    )
    monkeypatch.setenv("LONGFOLD_CACHE_DIR", str(prepared.cache_dir))
    monkeypatch.setenv("LONGFOLD_STATE_DIR", str(tmp_path / "state"))

    @contextmanager
    def open_session(settings: Settings, model: OpenModel, report: object) -> Iterator[Session]:
        prepared.opened += 1
        prepared.model = ScriptedModel(prepared.script)
        journal = Journal(settings.cache_dir / "journal.sqlite")
        yield Session(
            model=model,
            dispatcher=InlineDispatcher(prepared.model),
            journal=journal,
            speeds=SpeedBook(settings.cache_dir),
        )
        journal.close()

    monkeypatch.setattr(asking, "open_session", open_session)
    for command in (asking, rehearse_edit):
        monkeypatch.setattr(command, "resolve_model", lambda settings, report: ScriptedOpenModel(PROFILE))
    return prepared
