"""What can be set, asked for or chosen is written down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from benchmarks.__main__ import CHANGEABLE
from benchmarks.suites import SUITES
from pipeline.strategies import STRATEGIES
from pipeline.tasks import TASKS, load_task, task_for
from serving.cli.main import app
from serving.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
USAGE = (ROOT / "docs" / "usage.md").read_text("utf-8")
BENCHMARKS = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
STRUCTURE = (ROOT / "docs" / "structure.md").read_text("utf-8")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{PREFIX}{name.upper()}`" in USAGE


@pytest.mark.parametrize("name", [*TASKS, *STRATEGIES])
def test_every_task_and_strategy_is_documented(name: str) -> None:
    assert f"`{name}`" in USAGE


@pytest.mark.parametrize("name", [*SUITES, *CHANGEABLE])
def test_every_suite_and_size_is_documented(name: str) -> None:
    assert re.search(rf"`{name}[`=]", BENCHMARKS)


@pytest.mark.parametrize("name", ["ask", "compare"])
def test_every_option_of_the_commands_that_ask_is_documented(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options if f"`{option}`" not in USAGE} == set()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_loads_with_its_prompts(name: str) -> None:
    task = load_task(name)
    assert task.description
    assert task.map_output_tokens > 0


def test_a_chinese_question_gets_chinese_prompts() -> None:
    assert task_for("question_answering", "灯塔看守人叫什么名字？").name == "question_answering_zh"
    assert task_for("question_answering", "What does 灯塔 mean in English?").name == "question_answering"
    assert task_for("code", "灯塔看守人叫什么名字？").name == "code"


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100


def test_every_folder_of_the_structure_is_there_and_none_is_left_out() -> None:
    described = set(re.findall(r"^\| `([\w/]+)/` \|", STRUCTURE, re.MULTILINE))
    assert {folder for folder in described if not (ROOT / folder).is_dir()} == set()
    packages = {
        f"{top}/{path.name}"
        for top in ("pipeline", "serving")
        for path in (ROOT / top).iterdir()
        if path.is_dir() and not path.name.startswith("__")
    }
    assert packages - described == set()
