"""The generated tasks are built as published, and released files are read or asked for."""

from __future__ import annotations

import ast
import itertools
import json
import re
import statistics
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.infinitebench import generate
from benchmarks.infinitebench.generate import GENERATORS, NOISE, depths, find_value
from benchmarks.infinitebench.records import Record, count_records, parse_labels, question_of, read_records
from benchmarks.infinitebench.tasks import GENERATED, INF_TASKS, TARGETS
from benchmarks.suites.infinitebench import spread_places
from pipeline.errors import CallerError, UnknownName

SEEDS = st.integers(0, 10_000)


def test_a_noise_line_has_24_tokens() -> None:
    # cl100k_base splits English text into words with the space before them and marks with the line end after them;
    # each of these words is in its vocabulary.
    assert len(re.findall(r" ?\w+|[^\s\w]+\n*", NOISE)) == generate.NOISE_TOKENS
    assert "".join(re.findall(r" ?\w+|[^\s\w]+\n*", NOISE)) == NOISE


@pytest.mark.parametrize("name", ["passkey", "number_string"])
def test_the_published_grid_has_59_depths_and_590_records(name: str) -> None:
    grid = depths(generate.PUBLISHED_NOISE_LINES)
    assert grid == list(range(0, 5221, 90))
    assert GENERATORS[name].count(5220) == INF_TASKS[name].items == 590


@pytest.mark.parametrize(("lines", "step"), generate.NOISE_STEPS.items())
def test_depths_ascend_from_the_first_line_in_even_steps(lines: int, step: int) -> None:
    grid = depths(lines)
    assert grid[0] == 0
    assert lines - step < grid[-1] <= lines
    assert {b - a for a, b in itertools.pairwise(grid)} == {step}


@pytest.mark.parametrize("name", ["passkey", "number_string"])
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, data=st.data())
def test_the_key_stands_in_its_line_at_its_depth_and_nowhere_else(name: str, seed: int, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from([1, 57, 326, 652]))
    number = data.draw(st.integers(0, GENERATORS[name].count(lines) - 1))
    record = GENERATORS[name].make(seed, number, lines)
    text = record.context.splitlines(keepends=True)
    [needle] = [place for place, line in enumerate(text) if line != NOISE]
    assert len(text) == lines + 1
    assert needle == depths(lines)[number // 10]
    (key,) = record.labels
    assert re.fullmatch("[0-9]{5}" if name == "passkey" else "[0-9]{10}", str(key))
    assert record.context.count(str(key)) == 2 == text[needle].count(str(key))


def test_pass_keys_may_begin_with_zero_and_sequences_have_runs() -> None:
    keys = [str(generate.make_passkey(1, number, 326).labels[0]) for number in range(200)]
    assert any(key.startswith("0") for key in keys)
    for number in range(50):
        digits = str(generate.make_number_string(1, number, 326).labels[0])
        assert len(re.findall(r"(.)\1*", digits)) <= 5


@settings(max_examples=5, deadline=None)
@given(seed=SEEDS, number=st.integers(0, 499))
def test_the_key_asked_for_moves_by_five_of_2500(seed: int, number: int) -> None:
    assert generate.asked_place(number, generate.PUBLISHED_PAIRS) == 5 * number
    record = generate.make_kv_retrieval(seed, number % 50, 50)
    first, second = record.context.split("\n")
    assert "JSON" in first
    pairs = json.loads(second)
    assert len(pairs) == 50 == len(set(pairs))
    for one in (*pairs, *pairs.values()):
        assert uuid.UUID(one).version == 4
    asked = list(pairs)[number % 50]
    assert f'"{asked}"' in record.input
    assert record.input.startswith("\n")
    assert record.labels == (pairs[asked],)
    assert record.context.count(pairs[asked]) == 1


def test_the_published_sizes() -> None:
    assert GENERATORS["kv_retrieval"].count(2500) == INF_TASKS["kv_retrieval"].items
    assert GENERATORS["math_find"].count(30_000) == INF_TASKS["math_find"].items
    for name in GENERATED:
        generator = GENERATORS[name]
        assert generator.units_for(0) == generator.published_units
        assert generator.units_for(INF_TASKS[name].published_tokens) == pytest.approx(
            generator.published_units, rel=0.01
        )


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, number=st.integers(0, 349), numbers=st.integers(3, 400))
def test_math_find_asks_for_what_the_list_says(seed: int, number: int, numbers: int) -> None:
    record = generate.make_math_find(seed, number, numbers)
    values = ast.literal_eval(record.context)
    target = TARGETS[number // 50]
    assert len(values) == numbers
    assert min(values) >= 0
    assert max(values) <= 99
    assert target in record.input
    distinct = sorted(set(values))
    expected = {
        "largest number": distinct[-1],
        "second largest number": distinct[-2],
        "third largest number": distinct[-3],
        "smallest number": distinct[0],
        "second smallest number": distinct[1],
        "third smallest number": distinct[2],
        "median": statistics.median(values),
    }[target]
    assert record.labels == (expected,)
    assert isinstance(record.labels[0], float) == (target == "median" and numbers % 2 == 0)


def test_math_find_moves_one_end_of_the_range_only() -> None:
    for number in (0, 60, 120):
        values = ast.literal_eval(generate.make_math_find(1, number, 5_000).context)
        assert min(values) == 0
        assert 79 <= max(values) <= 99
    for number in (150, 210, 270):
        values = ast.literal_eval(generate.make_math_find(1, number, 5_000).context)
        assert 0 <= min(values) <= 19
        assert max(values) == 99
    assert find_value([1, 2, 2, 3], 6) == 2.0


@pytest.mark.parametrize("name", GENERATED)
def test_one_seed_gives_one_record_and_another_seed_another(name: str) -> None:
    make = GENERATORS[name].make
    assert make(1, 3, 60) == make(1, 3, 60)
    assert make(1, 3, 60).labels != make(2, 3, 60).labels or name == "math_find"
    assert make(1, 3, 60).context != make(2, 3, 60).context


def test_places_are_spread_from_first_to_last() -> None:
    assert spread_places(590, 0) == list(range(590))
    assert spread_places(5, 9) == [0, 1, 2, 3, 4]
    assert spread_places(59, 3) == [0, 29, 58]
    assert spread_places(5, 1) == [0]


def test_an_absent_file_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"longbook_qa_eng\.jsonl of the data set"):
        count_records(tmp_path, "longbook_qa_eng")
    with pytest.raises(CallerError, match="to generate it"):
        count_records(tmp_path, "passkey")
    with pytest.raises(UnknownName, match="passkey"):
        count_records(tmp_path, "longbook")


def test_every_task_reads_a_released_file(tmp_path: Path) -> None:
    for name, task in INF_TASKS.items():
        options = ["w", "x", "y", "z"] if name in ("longbook_choice_eng", "code_debug") else []
        line = {"id": 7, "context": "c", "input": "What?", "answer": ["y"], "options": options}
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(line)}\n\n{json.dumps(line)}\n", "utf-8")
        assert count_records(tmp_path, name) == 2
        [record] = read_records(tmp_path, name, [1])
        assert record.labels == (("y", "C") if options else ("y",))
        assert "What?" in question_of(task, record)


def test_options_are_shown_where_the_prompt_is_not_of_multiple_choice() -> None:
    record = Record(id=0, context="c", input="", labels=("f", "A"), options=("f", "g"))
    assert question_of(INF_TASKS["code_debug"], record).endswith("A. f\nB. g")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "passkey.jsonl").write_text('{"id": 1}\n', "utf-8")
    with pytest.raises(CallerError, match="Record 1 of"):
        list(read_records(tmp_path, "passkey"))


@pytest.mark.parametrize(
    ("answer", "options", "labels"),
    [
        ("x", (), ("x",)),
        (["x", "y"], (), ("x", "y")),
        (7, (), (7,)),
        ("g", ("f", "g"), ("g", "B")),
        (["g", "B"], ("f", "g"), ("g", "B")),
    ],
)
def test_labels_come_in_several_shapes(answer: object, options: tuple[str, ...], labels: tuple[object, ...]) -> None:
    assert parse_labels(answer, options) == labels
    with pytest.raises(ValueError, match="neither"):
        parse_labels(None)


def test_a_run_without_its_files_ends_before_a_model_is_served(tmp_path: Path) -> None:
    for settings_ in (["tasks=longbook_qa_eng"], [f"data={tmp_path}"]):
        changes = [part for one in settings_ for part in ("--set", one)]
        command = ["run", "infinitebench", "--model", "scripted", "--out", str(tmp_path), *changes]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert "InfiniteBench" in done.output
