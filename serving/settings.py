"""Settings: the only reader of the environment (`LONGFOLD_*`) and of `longfold.toml`.

A command line option wins over the environment, the environment over `longfold.toml`, of which the one in the current
folder is taken, else the one in the user's configuration folder. Built once at the entry point and passed down.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from pipeline.errors import SettingInvalid

PREFIX = "LONGFOLD_"
FILE_NAME = "longfold.toml"


class Settings(BaseSettings):
    """What is the same for every command on a machine."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    model: str = ""
    """A model directory, a hub repository (owner/name), or a name from `longfold models list`; empty: the default."""

    cache_dir: Path = platformdirs.user_cache_path("longfold")
    """Folder for models, the journal, and a running cluster's address."""

    state_dir: Path = platformdirs.user_state_path("longfold")
    """Folder for what must not be lost: the database of jobs and keys, uploads, and what keys are checked with."""

    database_url: str = ""
    """Where jobs and keys are kept, postgresql://user:password@host/name for instance; empty: SQLite in state_dir."""

    max_upload_mib: int = Field(default=256, ge=1)
    """MiB that one uploaded file may have."""

    ray_address: str = ""
    """Address of a Ray cluster that is there, for replicas and their users; empty: one of this machine's own."""

    ray_auth: Literal["token", "disabled"] = "token"
    """Whether Ray's processes prove to one another that they belong together."""

    context_tokens: int | None = Field(default=None, ge=1024)
    """Tokens of context that the model is served with, at least 1,024; none: what the catalogue says, else 8,192."""

    dtype: Literal["bfloat16", "float16", "float32"] | None = None
    """Number format that the model is served in; none: the one that this machine's hardware computes."""

    device: Literal["cpu", "gpu"] | None = None
    """Where models run; none: on the GPUs that are visible, else on the processor."""

    gpu_memory_share: float | None = Field(default=None, gt=0, le=1)
    """Share of each GPU's memory that a replica takes; none: 0.9, or what is free where other programs use it."""

    kv_cache_gib: float | None = Field(default=None, gt=0)
    """GiB of memory for the KV cache of each replica; none: what is free."""

    replicas: int | None = Field(default=None, ge=1)
    """Copies of the model that are served; none: one per GPU (or group of GPUs), or one without GPUs."""

    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that hold one copy of the model together."""

    host: str = "127.0.0.1"
    """Address that `longfold serve` listens on; one that others can reach needs a key to have been created."""

    port: int = Field(default=8000, ge=0, le=65535)
    """TCP port that `longfold serve` listens on; 0: any that is free."""

    sync_limit_s: float = Field(default=300, gt=0)
    """Seconds that a request may be expected to take without a stream; a longer one is told to run in background."""

    long_jobs: int = Field(default=2, ge=1)
    """Jobs on long documents that run at once; the others wait in the queue."""

    short_jobs: int = Field(default=4, ge=1)
    """Jobs of a single call, such as a chat with the raw model, that run at once beside the long ones."""

    keep_jobs_days: float = Field(default=90, ge=0)
    """Days that a job is kept after its end, with its events and result; 0: for ever."""

    keep_jobs: int = Field(default=100_000, ge=0)
    """Ended jobs that are kept at most, the latest ones; 0: all."""

    keep_files_days: float = Field(default=180, ge=0)
    """Days that an uploaded file is kept; its text stays as long as a job needs it. 0: for ever."""

    keep_files_gib: float = Field(default=100, gt=0)
    """GiB that uploaded files may take together; the oldest go first."""

    keep_calls_days: float = Field(default=90, ge=0)
    """Days that a completed call is kept for being resumed or asked again; 0: for ever."""

    keep_calls_gib: float = Field(default=20, gt=0)
    """GiB that completed calls may take; the oldest go first."""

    shared_cache: bool = False
    """Whether keys' owners share completed model calls; one could then tell by the time what another has asked."""

    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """What is logged to standard error; with debug, errors come with their traceback."""

    @property
    def database(self) -> str:
        """URL of the database, whether it was named or not."""
        return self.database_url or f"sqlite:///{(self.state_dir / 'longfold.sqlite').absolute()}"

    @property
    def files_dir(self) -> Path:
        """Folder for uploads and the texts read from them."""
        return self.state_dir / "files"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """First wins."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=find_settings_file())


def find_settings_file() -> Path | None:
    """The `longfold.toml` that is read, if there is one."""
    candidates = [Path.cwd() / FILE_NAME, platformdirs.user_config_path("longfold") / FILE_NAME]
    return next((path for path in candidates if path.is_file()), None)


def load_settings(**options: Any) -> Settings:
    """Read the settings; `options` come from the command line, None among them meaning not given.

    Raises SettingInvalid naming the variable, its value and what is expected, also for a misspelled name.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _refuse_misspelled()
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingInvalid(" ".join(_explain(entry, given) for entry in error.errors())) from error
    except (SettingsError, tomllib.TOMLDecodeError) as error:
        raise SettingInvalid(f"{find_settings_file() or 'The environment'} cannot be read: {error}.") from error


def _explain(entry: ErrorDetails, given: dict[str, Any]) -> str:
    name = str(entry["loc"][0])
    if name not in Settings.model_fields:
        return f"{find_settings_file()} sets {name}, but the settings are {', '.join(Settings.model_fields)}."
    if name in given:
        place = f"--{name.replace('_', '-')}"
    elif os.environ.get(PREFIX + name.upper()):
        place = PREFIX + name.upper()
    else:
        place = f"{name} in {find_settings_file()}"
    meant = (Settings.model_fields[name].description or "").rstrip(".")
    return f"{place} is {entry['input']!r}: {entry['msg'].replace('Input', 'it', 1)}. ({meant}.)"


def _refuse_misspelled() -> None:
    """A setting that is silently ignored costs more time than any other mistake."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in known:
            close = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
            if close:
                raise SettingInvalid(f"Unknown setting {variable}; did you mean {close[0]}?")
