"""`python -m benchmarks run NAME` measures; `report` shows what was measured; `list` names the suites.

Exit codes: 0 done, 2 a wrong argument, 3 to 5 as `longfold`, 130 stopped by Ctrl-C (what was measured is kept).
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness.compare import compare_results
from benchmarks.harness.header import make_header
from benchmarks.harness.results import ResultsFile, find_resumable, read_results, scored, unscored_keys
from benchmarks.harness.suite import Bench, Options, Suite
from benchmarks.infinitebench.predictions import score_predictions
from benchmarks.suites import SUITES
from benchmarks.systems.model import SCRIPTED, BenchModel, find_bench_model, serve_model
from pipeline.errors import LongfoldError, SettingInvalid, UnknownName
from serving.settings import load_settings

RESULTS = Path(__file__).parent / "results"

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Measures quality and speed of Longfold.",
)


@app.command(name="list")
def list_suites() -> None:
    """Name the suites."""
    for name, suite in SUITES.items():
        print(f"{name:16} {suite.purpose}")


@app.command()
def run(
    name: str,
    model: Annotated[
        str, typer.Option(help="Catalogue name, hub id or directory; the default model if not given.")
    ] = "",
    quick: Annotated[bool, typer.Option(help="Small sizes, to see that everything works.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS,
    resume: Annotated[bool, typer.Option(help="Go on with the newest results of the same settings.")] = False,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="SIZE=VALUE, e.g. tokens=12000 or variants=default,no_gate.")
    ] = None,
) -> None:
    """Measure one suite, write a results file and print the report."""
    suite = _find(name)
    if suite.scripted:
        if model not in ("", SCRIPTED):
            raise SettingInvalid(f"The suite {name} measures what is around a model; leave --model out.")
        model = SCRIPTED
    options = change_options(replace(suite.quick if quick else Options(model=""), model=model), change or [])
    found = find_bench_model(model, load_settings(model=model or None), _say)
    results = _open_results(name, found, options, out, resume=resume)
    _say(f"results go to {results.path}")
    code = _measure(suite, found, options, results)
    _report(results.path, draw=True)
    sys.exit(code)


@app.command()
def report(
    files: Annotated[list[Path] | None, typer.Argument(help="None: every results file.")] = None,
    draw: Annotated[bool, typer.Option(help="Write a picture beside each file.")] = False,
) -> None:
    """Show what was measured, without measuring."""
    for path in files or sorted(RESULTS.glob("*.jsonl")):
        _report(path, draw=draw)


@app.command()
def compare(first: Path, second: Path) -> None:
    """Put two results files of one suite side by side, paired by item."""
    for line in compare_results(first, second):
        print(line)


@app.command()
def score(
    task: Annotated[str, typer.Argument(help="File name of the InfiniteBench task, e.g. passkey.")],
    file: Annotated[Path, typer.Argument(help="JSON lines, each with a prediction and its label or id.")],
    data: Annotated[Path | None, typer.Option(help="Folder with the task's released file, for the labels.")] = None,
    post_process: Annotated[bool, typer.Option(help="Cut the answers out first, as LLMxMapReduce does.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write each prediction's scores and rules there.")] = None,
) -> None:
    """Score a file of InfiniteBench predictions under both scorers, without a model."""
    rows, lines = score_predictions(file, task, data, post_processed=post_process)
    if out:
        out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    for line in lines:
        print(line)


def change_options(options: Options, changes: Sequence[str]) -> Options:
    """Apply `SIZE=VALUE` texts; lists are separated by commas. Raises SettingInvalid."""
    for change in changes:
        name, equals, value = change.partition("=")
        if name not in CHANGEABLE or not equals:
            raise SettingInvalid(f"--set {change!r}: expected SIZE=VALUE with one of {', '.join(CHANGEABLE)}.")
        try:
            options = replace(options, **{name: CHANGEABLE[name](value)})
        except ValueError as error:
            raise SettingInvalid(f"--set {change!r}: {error}") from error
    return options


def _texts(value: str) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part)


def _whole_numbers(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _texts(value))


def _yes_or_no(value: str) -> bool:
    if value not in ("yes", "no"):
        raise ValueError(f"expected yes or no, not {value!r}")
    return value == "yes"


CHANGEABLE: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "documents": int,
    "tokens": int,
    "questions": int,
    "rounds": int,
    "prompts": int,
    "computed": _yes_or_no,
    "chunk_tokens": int,
    "lengths": _whole_numbers,
    "depths": _whole_numbers,
    "needles": int,
    "repeats": int,
    "variants": _texts,
    "strategies": _texts,
    "kinds": _texts,
    "tasks": _texts,
    "data": str,
    "languages": _texts,
}
"""Fields of `Options` that `--set` changes, and how their text is read."""


def _find(name: str) -> Suite:
    if name not in SUITES:
        raise UnknownName(f"No suite {name!r}; the suites are {', '.join(SUITES)}.")
    return SUITES[name]


def _open_results(name: str, model: BenchModel, options: Options, out: Path, *, resume: bool) -> ResultsFile:
    header: dict[str, Any] = make_header(name, model=model.describe(), settings=options.settings())
    header |= {"gate": header["model"].pop("gate"), "calibration": header["model"].pop("calibration")}
    path = find_resumable(out, header) if resume else None
    if path and (before := read_results(path)[0]["commit"]) != header["commit"]:
        _say(f"the first part was measured on commit {before[:12]}, the rest on {header['commit'][:12]}")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    label = f"{name}-{'quick-' if options.quick else ''}{Path(model.name).name}-{stamp}.jsonl"
    return ResultsFile(path or out / label, header)


def _measure(suite: Suite, model: BenchModel, options: Options, results: ResultsFile) -> int:
    """Return the exit code; whatever ends it, the measurements so far are in the file."""
    bench = Bench(
        options=options,
        results=results,
        serve=lambda kv_cache_bytes=None: serve_model(model, _say, kv_cache_bytes),
        tokenizer=lambda: model.tokenizer,
        model=model,
        say=_say,
    )
    try:
        asyncio.run(suite.run(bench))
    except KeyboardInterrupt:
        _say("stopped; what was measured is kept, --resume goes on")
        return 130
    except LongfoldError as error:
        _say(f"{type(error).__name__}: {error}")
        return error.exit_code
    return 0


def _report(path: Path, *, draw: bool) -> None:
    header, rows = read_results(path)
    if header["suite"] not in SUITES:
        return
    suite = SUITES[header["suite"]]
    hardware = header["hardware"]
    print(f"\n{header['suite']} · {header['model']['name']} · {header['date']} · {path.name}")
    print(f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, {hardware['gpus'] or 'no GPU'}")
    print(f"commit {header['commit'][:12]}{' (changed)' if header['dirty'] else ''}\n")
    measured = scored(rows)
    failed = unscored_keys(rows)
    for line in suite.report(header, measured, failed):
        print(line)
    if draw:
        path.with_suffix(".svg").write_text(suite.picture(header, measured, failed), "utf-8")
        print(f"picture: {path.with_suffix('.svg')}")
    print(f"\n{len(measured)} measurements, {len(failed)} unscored (failed, not counted above)")
    print(json.dumps({"file": str(path), "measured": len(measured), "unscored": len(failed)}))


_STARTED_S = time.monotonic()


def _say(message: str) -> None:
    print(f"[{time.monotonic() - _STARTED_S:7.1f} s] {message}", file=sys.stderr, flush=True)


def main() -> None:
    """A termination ends it as Ctrl-C does: no engine or service that was started is left."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except LongfoldError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
