"""A model's name → its directory. What is not there yet is brought once, whole or not at all."""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.errors import CapacityError, ModelIncomplete, NetworkUnavailable, OutOfDisk, UnknownName
from serving.models.catalogue import CatalogueEntry, HubSource, Source, read_catalogue
from serving.models.files import require_complete, sync_directory, write_manifest
from serving.models.sources import Report, fetch_source

Fetch = Callable[[Source, Path, Path, int, Report], None]
"""As `fetch_source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model of the catalogue, and where it is on this machine."""

    entry: CatalogueEntry
    path: Path | None


def list_models(cache_dir: Path) -> tuple[KnownModel, ...]:
    """Return the catalogue; `path` is set for what has been pulled."""
    return tuple(
        KnownModel(entry=entry, path=find_model(name, cache_dir=cache_dir)) for name, entry in read_catalogue().items()
    )


def find_model(name: str, *, cache_dir: Path) -> Path | None:
    """Return the directory that `name` stands for: a path as it is, a pulled model if it is here and whole, or none."""
    if _is_path(name):
        return Path(name).expanduser().resolve()
    cached = model_folder(name, cache_dir=cache_dir)
    try:
        require_complete(cached)
    except ModelIncomplete:
        return None
    return cached


def model_folder(name: str, *, cache_dir: Path) -> Path:
    """Return where a pulled model lies: the hub's "owner/name" becomes the folder "owner--name"."""
    return cache_dir / "models" / name.replace("/", "--")


def pull_model(name: str, *, cache_dir: Path, report: Report, fetch: Fetch = fetch_source) -> Path:
    """Return the directory of a model: an existing directory, a catalogue name, or a hub repository "owner/name".

    Looks for the directory first, then into the cache, then tries the sources in order. The directory appears in
    the cache complete or not at all, and two processes that pull the same model download it once.
    Raises UnknownName, ModelIncomplete, NetworkUnavailable (with all that was tried), OutOfDisk, OutOfMemory.
    """
    if found := find_model(name, cache_dir=cache_dir):
        require_complete(found)
        return found
    sources, weights_bytes = _sources(name, read_catalogue())
    target = model_folder(name, cache_dir=cache_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target, report):
        if found := find_model(name, cache_dir=cache_dir):  # another process was faster
            return found
        _remove_leftovers(target)
        _bring(name, sources, weights_bytes, target, report, fetch)
    report(f"{name} is ready in {target}")
    return target


def _is_path(name: str) -> bool:
    if Path(name).expanduser().is_dir():
        return True
    if name.startswith((".", "/", "~")):
        raise UnknownName(f"There is no directory {name}.")
    return False


def _sources(name: str, catalogue: Mapping[str, CatalogueEntry]) -> tuple[tuple[Source, ...], int]:
    if entry := catalogue.get(name):
        return entry.sources, entry.weights_bytes
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return (HubSource(repository=name),), 0
    raise UnknownName(
        f"{name!r} is no model: give a directory, a hub repository (owner/name), or one of {', '.join(catalogue)}."
    )


def _bring(
    name: str, sources: tuple[Source, ...], weights_bytes: int, target: Path, report: Report, fetch: Fetch
) -> None:
    """Try the sources in order; move the first model that is complete to `target`."""
    tried = []
    for source in sources:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as work:
            out = Path(work) / "out"
            try:
                fetch(source, out, Path(work), weights_bytes, report)
                require_complete(out)
            except (NetworkUnavailable, ModelIncomplete) as error:
                tried.append(f"{source}: {error}")
                report(f"cannot use {tried[-1]}")
                continue
            except OSError as error:
                raise _disk_error(error) from error
            write_manifest(out, name=name, source=str(source))
            sync_directory(out)
            out.replace(target)
            return
    raise NetworkUnavailable(f"{name} cannot be brought. Tried " + "; ".join(tried) + ".")


def _disk_error(error: OSError) -> CapacityError:
    return OutOfDisk() if error.errno == errno.ENOSPC else CapacityError(f"The cache folder cannot be used: {error}")


def _remove_leftovers(target: Path) -> None:
    """Remove what interrupted pulls of this model left. Only while holding its lock."""
    for path in [target, *target.parent.glob(f".{target.name}-*")]:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(target: Path, report: Report) -> Iterator[None]:
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"another process is bringing {target.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
