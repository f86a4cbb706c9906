"""Is a model directory complete, whole, and fit for the context it is to be served with?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import ContextTooSmall, ModelIncomplete
from serving.models.check_result import CheckResult, bad, ok, warn
from serving.models.files import file_sha256, is_whole_safetensors, missing_files, read_manifest, weight_files
from serving.models.profile import read_geometry

_PULL_AGAIN = "delete the directory and pull the model again"


def check_model(directory: Path, *, context_tokens: int | None = None, checksums: bool = True) -> list[CheckResult]:
    """Return what was found, worst things included; never raises for a bad model.

    `checksums=False` leaves out reading all weights (seconds per GB).
    """
    try:
        if missing := missing_files(directory):
            return [bad("model files", f"{directory} lacks {', '.join(missing)}", _PULL_AGAIN)]
        return list(_checks(directory, context_tokens, checksums))
    except ModelIncomplete as error:
        return [bad("model files", str(error), _PULL_AGAIN)]


def _checks(directory: Path, context_tokens: int | None, checksums: bool) -> Iterator[CheckResult]:
    weights = weight_files(directory)
    if cut := [path.name for path in weights if not is_whole_safetensors(path)]:
        yield bad("model files", f"{', '.join(cut)} is cut short", _PULL_AGAIN)
    else:
        size_bytes = sum(path.stat().st_size for path in weights)
        yield ok("model files", f"{directory}: {size_bytes / 1e9:.1f} GB of weights")
    yield _tokenizer_check(directory)
    yield _template_check(directory)
    yield _context_check(directory, context_tokens)
    if checksums:
        yield _checksum_check(directory)


def _tokenizer_check(directory: Path) -> CheckResult:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception as error:  # noqa: BLE001  # the library raises plain Exception
        return bad("tokenizer", f"tokenizer.json does not load: {error}", _PULL_AGAIN)
    return ok("tokenizer", f"{tokenizer.get_vocab_size():,} tokens")


def _template_check(directory: Path) -> CheckResult:
    config = directory / "tokenizer_config.json"
    if (directory / "chat_template.jinja").is_file():
        return ok("chat template", "chat_template.jinja")
    if config.is_file() and '"chat_template"' in config.read_text(encoding="utf-8", errors="replace"):
        return ok("chat template", "in tokenizer_config.json")
    return bad("chat template", "none", "take an instruction-tuned model: one without a chat template cannot be asked")


def _context_check(directory: Path, context_tokens: int | None) -> CheckResult:
    try:
        geometry = read_geometry(directory)
        wanted = geometry.served_context(context_tokens)
    except ContextTooSmall as error:
        return bad("context", str(error), "ask for a smaller context, or take another model")
    return ok("context", f"{wanted:,} of {geometry.window_tokens:,} tokens")


def _checksum_check(directory: Path) -> CheckResult:
    manifest = read_manifest(directory)
    if manifest is None:
        return warn("checksums", "no longfold.json: not pulled by Longfold", "nothing, if you trust the directory")
    changed = [
        name
        for name, sha256 in manifest.sha256.items()
        if not (directory / name).is_file() or file_sha256(directory / name) != sha256
    ]
    if changed:
        return bad("checksums", f"changed since it was pulled: {', '.join(changed)}", _PULL_AGAIN)
    return ok("checksums", f"{len(manifest.sha256)} files as pulled from {manifest.source}")
