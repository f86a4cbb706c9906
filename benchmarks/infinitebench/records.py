"""Records of InfiniteBench: what a generator makes and a released file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.infinitebench.tasks import GENERATED, LETTERS, TARGETS, InfTask, find_task
from pipeline.errors import CallerError

Label = str | int | float

HUB_DATASET = "xinrongzhang2022/InfiniteBench"
_ITEMS_PER_TARGET = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One item. `labels` is what the scorers take: references, or [text, letter] where there are options."""

    id: int
    context: str
    input: str
    labels: tuple[Label, ...]
    options: tuple[str, ...] = ()


def question_of(task: InfTask, record: Record) -> str:
    """The question for Longfold; the context is the document."""
    target = TARGETS[min(record.id // _ITEMS_PER_TARGET, len(TARGETS) - 1)]
    options = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, record.options, strict=False))
    return task.question.format(input=record.input.strip(), target=target, options=options).strip()


def count_records(folder: Path, name: str) -> int:
    with _find(folder, name).open(encoding="utf-8") as file:
        return sum(1 for line in file if line.strip())


def read_records(folder: Path, name: str, wanted: Sequence[int] | None = None) -> Iterator[Record]:
    """Records of a released file, one at a time; only those at the places `wanted`, if given.

    Raises CallerError if the file is not there (saying where to get it) or a line is no record.
    """
    path = _find(folder, name)
    chosen = None if wanted is None else set(wanted)
    with path.open(encoding="utf-8") as file:
        lines = (line for line in file if line.strip())
        for place, line in enumerate(lines):
            if chosen is not None and place not in chosen:
                continue
            try:
                yield parse_record(json.loads(line), place)
            except (ValueError, KeyError, TypeError) as error:
                raise CallerError(f"Record {place + 1} of {path} is no InfiniteBench record: {error!r}.") from error


def _find(folder: Path, name: str) -> Path:
    path = folder / f"{find_task(name).name}.jsonl"
    if path.is_file():
        return path
    why = "Leave data= out to generate it, or get" if name in GENERATED else "It is real text, not to be generated. Get"
    raise CallerError(
        f"{path} is not there. {why} {path.name} of the data set "
        f"{HUB_DATASET} (huggingface.co/datasets/{HUB_DATASET}) on a machine with a network, put it into a folder "
        f"and name the folder: --set data=FOLDER."
    )


def parse_record(fields: Mapping[str, Any], place: int) -> Record:
    """`place` replaces an id that is not given. Raises KeyError, ValueError or TypeError."""
    options = tuple(str(option) for option in fields.get("options") or ())
    return Record(
        id=int(fields.get("id", place)),
        context=str(fields["context"]),
        input=str(fields.get("input") or ""),
        labels=parse_labels(fields["answer"], options),
        options=options,
    )


def parse_labels(answer: Any, options: Sequence[str] = ()) -> tuple[Label, ...]:
    """References as a tuple; with options [text, letter], the letter being the place of the text among them."""
    labels = tuple(answer) if isinstance(answer, list | tuple) else (answer,)
    if not labels or not all(isinstance(label, str | int | float) for label in labels):
        raise ValueError(f"the answer {answer!r} is neither text nor number nor a list of them")
    if options and not (len(labels) == 2 and labels[1] in LETTERS):
        return labels[0], LETTERS[list(options).index(str(labels[0]))]
    return labels
