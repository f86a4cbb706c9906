"""A model directory of a few kilobytes that passes every check, and a wheel that carries data."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.factories import CHATML, tokenizer_json

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "max_position_embeddings": 32768,
    "dtype": "bfloat16",
}


def make_safetensors(path: Path, data: bytes = b"\0" * 64) -> None:
    header = {"w": {"dtype": "BF16", "shape": [len(data) // 2], "data_offsets": [0, len(data)]}}
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def make_model(directory: Path, **config: Any) -> Path:
    """Write a complete model directory; `config` replaces values of config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(directory / "tokenizer.json"))  # noqa: S106
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    make_safetensors(directory / "model.safetensors")
    return directory


def make_chat_model(directory: Path, **config: Any) -> Path:
    """Write a model directory whose tokenizer can say anything and whose template speaks in turns."""
    make_model(directory, **config)
    (directory / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return directory


def make_wheel(folder: Path, distribution: str, version: str, members: dict[str, bytes]) -> Path:
    """Write a wheel as pip accepts it."""
    stem = f"{distribution.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
        info = f"{stem}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path
