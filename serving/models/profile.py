"""What the rest of the system needs to know about a model: its window, its sizes, how it was fitted."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import ContextTooSmall, ModelIncomplete
from pipeline.findings.confidence import Calibration, GateSettings
from serving.models.catalogue import CatalogueEntry, read_catalogue
from serving.models.dtype import DTYPE_BYTES, Dtype, DtypeName, choose_dtype
from serving.models.files import read_manifest, require_complete, sampled_bytes, weight_files

_DEFAULT_CONTEXT_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The sizes that decide how much memory a model takes."""

    layers: int
    heads: int
    """Of attention; tensor parallel shares them out."""
    kv_heads: int
    head_dim: int
    stored_bytes: int
    """Of one number in the checkpoint."""
    window_tokens: int
    """The most that the model was made for."""
    quantized: bool = False
    """Whether the weights are stored in fewer bits than they are computed in (AWQ, GPTQ, FP8)."""

    def served_context(self, wanted_tokens: int | None) -> int:
        """Return the context to serve, 8,192 if none is wanted and the window holds it. Raises ContextTooSmall."""
        if wanted_tokens is None:
            return min(self.window_tokens, _DEFAULT_CONTEXT_TOKENS)
        if wanted_tokens > self.window_tokens:
            raise ContextTooSmall(
                f"The model's window is {self.window_tokens:,} tokens and {wanted_tokens:,} were asked for."
            )
        return wanted_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model directory that can be served, and how."""

    path: Path
    name: str
    """Catalogue name, hub repository, or the directory's name."""
    context_tokens: int
    chunk_tokens: int | None
    """What this model reads best at a time; none if that was not measured."""
    geometry: Geometry
    dtype: Dtype
    """The format that the model is served in."""
    weights_bytes: int
    """In memory, in that format."""
    gate: GateSettings
    calibration: Calibration
    fingerprint: str
    """Equal for models, with their format, that give the same completions; part of a journal's keys."""
    tasks_without_rationale: tuple[str, ...] = ()
    """Tasks at which its findings have no rationale."""

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.geometry.layers * self.geometry.kv_heads * self.geometry.head_dim * self.dtype.bytes


def load_profile(
    directory: Path,
    entry: CatalogueEntry | None = None,
    *,
    context_tokens: int | None = None,
    dtype: DtypeName | None = None,
) -> ModelProfile:
    """Read a model directory. Without `entry`, the catalogue is asked for the name in the directory's manifest.

    Without `dtype`, the model is served in the format that this machine computes.

    Raises ModelIncomplete, or ContextTooSmall if the window does not hold the context.
    """
    require_complete(directory)
    manifest = read_manifest(directory)
    if entry is None and manifest is not None:
        entry = read_catalogue().get(manifest.name)
    geometry = read_geometry(directory)
    wanted = context_tokens or (entry.context_tokens if entry else None)
    served = choose_dtype(dtype)
    stored_bytes = sum(path.stat().st_size for path in weight_files(directory))
    known_name = entry.name if entry else manifest.name if manifest else None
    return ModelProfile(
        path=directory,
        name=known_name or directory.name,
        context_tokens=geometry.served_context(wanted),
        chunk_tokens=entry.chunk_tokens if entry else None,
        geometry=geometry,
        dtype=served,
        # What is quantized stays as it is stored.
        weights_bytes=stored_bytes if geometry.quantized else stored_bytes * served.bytes // geometry.stored_bytes,
        gate=entry.gate if entry else GateSettings(),
        calibration=entry.calibration if entry else Calibration(),
        tasks_without_rationale=entry.tasks_without_rationale if entry else (),
        fingerprint=fingerprint(directory, served),
    )


def read_geometry(directory: Path) -> Geometry:
    """Read config.json, of a text model or of the text part of another. Raises ModelIncomplete."""
    path = directory / "config.json"
    try:
        table = json.loads(path.read_bytes())
        config = _Config.model_validate(table.get("text_config", table))
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise ModelIncomplete(f"{path} cannot be used: {error}") from error
    dtype = str(config.dtype or config.torch_dtype or table.get("dtype") or table.get("torch_dtype"))
    return Geometry(
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        stored_bytes=DTYPE_BYTES.get(dtype, 2),
        window_tokens=config.max_position_embeddings,
        quantized=bool(table.get("quantization_config")),
    )


def fingerprint(directory: Path, dtype: Dtype) -> str:
    """Hash the format it is served in, configuration, tokenizer, chat template and samples of the weights.

    Samples, because reading gigabytes at every start would cost seconds; the manifest has the full checksums.
    """
    digest = hashlib.sha256(f"model-2\0{dtype.name}\0".encode())
    config: dict[str, Any] = json.loads((directory / "config.json").read_bytes())
    for note in ("transformers_version", "_name_or_path", "_model_name_or_path"):
        config.pop(note, None)
    digest.update(json.dumps(config, sort_keys=True).encode())
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if (directory / name).is_file():
            digest.update(f"\0{name}\0".encode() + (directory / name).read_bytes())
    for path in weight_files(directory):
        digest.update(f"\0{path.name}\0".encode())
        for block in sampled_bytes(path):
            digest.update(block)
    return digest.hexdigest()


class _Config(BaseModel):
    """What is read of config.json, which others write and extend: so unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int | None = None
    hidden_size: int = Field(gt=0)
    head_dim: int | None = None
    max_position_embeddings: int = Field(gt=0)
    dtype: str | None = None
    torch_dtype: str | None = None
