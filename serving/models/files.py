"""What a model directory holds, and the manifest by which a converted one can be verified."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.errors import ModelIncomplete

MANIFEST_NAME = "longfold.json"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Where a pulled model came from, and the checksum of each of its files."""

    name: str
    """Catalogue name or hub repository."""
    source: str
    sha256: Mapping[str, str]
    """By file name, relative to the model directory."""


class _ManifestFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    source: str
    sha256: dict[str, str]


def write_manifest(directory: Path, *, name: str, source: str) -> None:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST_NAME)
    sums = {path.relative_to(directory).as_posix(): file_sha256(path) for path in files}
    text = _ManifestFile(name=name, source=source, sha256=sums).model_dump_json(indent=2)
    (directory / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest, or none for a directory that Longfold did not pull. Raises ModelIncomplete."""
    path = directory / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        table = _ManifestFile.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ModelIncomplete(f"{path} is damaged; delete the directory and pull the model again.") from error
    return Manifest(**table.model_dump())


def sync_directory(directory: Path) -> None:
    """Make sure that the files are on the disk, so that a rename never shows a directory of empty files."""
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weight_files(directory: Path) -> tuple[Path, ...]:
    """Return the safetensors files that make up the weights, in order of name; they need not exist.

    With an index these are the files that it lists, else every safetensors file there is. Raises ModelIncomplete.
    """
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        found = sorted(directory.glob("*.safetensors"))
        return tuple(found) or (directory / "model.safetensors",)
    try:
        shards: Mapping[str, str] = json.loads(index.read_bytes())["weight_map"]
        return tuple(directory / name for name in sorted(set(shards.values())))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelIncomplete(f"{index} is damaged; pull the model again.") from error


def missing_files(directory: Path) -> list[str]:
    """Return the names of the files that an engine needs and that are not there."""
    wanted = [directory / "config.json", directory / "tokenizer.json", *weight_files(directory)]
    return [path.name for path in wanted if not path.is_file()]


def require_complete(directory: Path) -> None:
    """Raise ModelIncomplete, with the names, if files are missing or a weight file is cut short."""
    if missing := missing_files(directory):
        raise ModelIncomplete(f"{directory} lacks {', '.join(missing)}; pull the model again.")
    if cut := [path.name for path in weight_files(directory) if not is_whole_safetensors(path)]:
        raise ModelIncomplete(f"{directory}: {', '.join(cut)} is cut short; pull the model again.")


def is_whole_safetensors(path: Path) -> bool:
    """Return whether the file is as long as its header says; its content is not read."""
    try:
        with path.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            if header_bytes > path.stat().st_size:
                return False
            header = json.loads(file.read(header_bytes))
        data_bytes = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    except (OSError, struct.error, ValueError, LookupError, TypeError, AttributeError):
        return False
    return path.stat().st_size == int(8 + header_bytes + data_bytes)


def sampled_bytes(path: Path, *, samples: int = 16) -> Iterator[bytes]:
    """Yield the file's length and evenly spread pieces of it.

    Enough to tell two fine-tunings of one model apart, which have equal sizes, without reading gigabytes.
    """
    length = path.stat().st_size
    yield str(length).encode()
    with path.open("rb") as file:
        for sample in range(samples):
            file.seek(max(0, length - _READ_BYTES) * sample // max(1, samples - 1))
            yield file.read(_READ_BYTES // samples)
