"""Each rule of the two scorers, and the cases in which they part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.infinitebench.post_process import post_process
from benchmarks.infinitebench.predictions import score_predictions
from benchmarks.infinitebench.records import Label
from benchmarks.infinitebench.rouge import rouge_lsum
from benchmarks.infinitebench.score import Mark, score_prediction
from benchmarks.infinitebench.summary import score_row, summary_lines, task_label
from benchmarks.infinitebench.tasks import INF_TASKS, SCORERS
from pipeline.errors import CallerError

FACE = ("ACE", "JOHN")
CHOICE = ("In the attic.", "B")
CODE = ("parse_date", "A")


def both(task: str, prediction: str, labels: tuple[Label, ...]) -> tuple[float, float]:
    lenient, upstream = (score_prediction(scorer, task, prediction, labels).value for scorer in SCORERS)
    return lenient, upstream


@pytest.mark.parametrize(
    ("task", "prediction", "labels"),
    [
        ("passkey", "chunk 3 says 71432", ("71432",)),
        ("number_string", "chunk 3 says 3000077442", ("3000077442",)),
        ("code_debug", "A function is wrong\nB", CODE),
        ("longbook_choice_eng", "I think A or B", CHOICE),
        ("longdialogue_qa_eng", "a face", FACE),
        ("longdialogue_qa_eng", "It is John.", FACE),
        ("longbook_choice_eng", "My Answer: In the attic", ("In the attic", "B")),
    ],
)
def test_where_the_scorers_part_lenient_gives_one_and_upstream_none(
    task: str, prediction: str, labels: tuple[Label, ...]
) -> None:
    assert both(task, prediction, labels) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("task", "prediction", "labels", "value"),
    [
        ("passkey", "The pass key is 07143.", ("07143",), 1.0),
        ("passkey", "07143", ("7143",), 0.0),
        ("passkey", "7143", ("07143",), 0.0),
        ("passkey", "", ("07143",), 0.0),
        ("passkey", "no key", ("07143",), 0.0),
        ("passkey", "1234507143", ("07143",), 0.0),
        ("kv_retrieval", 'The value is "0a-1b".', ("0a-1b",), 1.0),
        ("kv_retrieval", '{"k":"0a-1b"}', ("0a-1b",), 1.0),
        ("kv_retrieval", "(0a-1b)", ("0a-1b",), 0.0),
        ("kv_retrieval", "0a-1bc", ("0a-1b",), 0.0),
        ("math_find", "The largest is 97, not 98.", (97,), 1.0),
        ("math_find", "2nd largest: 97", (97,), 0.0),
        ("math_find", "median 48.5", (48.5,), 1.0),
        ("math_find", "48", (48.0,), 1.0),
        ("math_find", "none", (97,), 0.0),
        ("longbook_qa_eng", "The Paris.", ("paris",), 1.0),
        ("longbook_qa_eng", "", ("paris",), 0.0),
        ("longbook_qa_eng", "in Paris", ("London", "Paris"), pytest.approx(2 / 3)),
        ("longbook_qa_eng", "an-other", ("another",), 1.0),
        ("longbook_qa_chn", "《灯塔》，是 他。", ("灯塔是他",), 1.0),
        ("longbook_qa_chn", "灯", ("灯塔",), pytest.approx(2 / 3)),
        ("longdialogue_qa_eng", "ace", FACE, 1.0),
        ("longdialogue_qa_eng", "'Ace'.", FACE, 1.0),
        ("longbook_sum_eng", "", ("a b",), 0.0),
    ],
)
def test_where_the_scorers_agree(task: str, prediction: str, labels: tuple[Label, ...], value: float) -> None:
    assert both(task, prediction, labels) == (value, value)


def test_a_decimal_for_an_integer_is_a_counted_error_and_no_crash() -> None:
    for scorer in SCORERS:
        mark = score_prediction(scorer, "math_find", "97.0", (97,))
        assert (mark.value, mark.rule) == (0.0, "error")
        assert mark.error
    assert score_prediction("upstream", "math_find", "97.0", (97.0,)) == Mark(1.0, "first number")


@pytest.mark.parametrize(
    ("prediction", "lenient", "upstream", "rule"),
    [
        ("B", 1, 1, "last letter of a line"),
        ("A or B\nC", 1, 0, "last letter of a line"),
        ("B, not C", 1, 1, "first character"),
        ("C\nB", 0, 0, "first character"),
        ("Answer: In the attic", 0, 0, "first character"),
        ("", 0, 0, "empty"),
        ("  \n", 0, 0, "empty"),
        ("Because of the rain", 1, 1, "first character"),
        ("In the attic.", 1, 1, "whole output"),
        ("in the attic", 0, 0, "first letter"),
        ("the answer is: In the cellar", 0, 0, "prefix"),
        ("the option is B", 1, 1, "last letter of a line"),
        ("I say: the answer is", 0, 0, "prefix"),
        ("Was it C or\nD?", 0, 0, "first letter"),
    ],
)
def test_multiple_choice_rules_in_their_order(prediction: str, lenient: int, upstream: int, rule: str) -> None:
    assert both("longbook_choice_eng", prediction, CHOICE) == (lenient, upstream)
    assert score_prediction("lenient", "longbook_choice_eng", prediction, CHOICE).rule == rule


def test_the_prefixes_are_looked_for_in_their_order_not_in_that_of_the_text() -> None:
    text = ("the attic", "B")
    assert both("longbook_choice_eng", "answer: x, so the answer is: the attic", text) == (1, 1)
    assert both("longbook_choice_eng", "answer: the attic, or the answer is: x", text) == (0, 0)
    assert both("longbook_choice_eng", "answer:the attic", text) == (0, 0)  # one character is skipped


def test_punctuation_of_the_option_itself_makes_the_prefix_rule_fail() -> None:
    assert both("longbook_choice_eng", "My Answer: In the attic.", CHOICE) == (0, 0)


@pytest.mark.parametrize(
    ("prediction", "lenient", "upstream"),
    [
        ("A. parse_date", 1, 1),
        ("A: it", 1, 1),
        ("A", 1, 0),
        ("A) parse_date", 1, 0),
        ("parse_date", 1, 1),
        ("the answer is: A", 1, 1),
        ("the answer is: parse_date", 1, 1),
        ("Option is: parse_date", 1, 1),
        ("Answer: parse_date", 1, 0),
        ("answer: `parse_date`", 1, 1),
        ("B. other", 0, 0),
        ("The error is in parse_date", 0, 0),
        ("Maybe A, rather than E", 0, 0),
        ("", 0, 0),
        ("answer:", 0, 0),
    ],
)
def test_code_debug_rules(prediction: str, lenient: int, upstream: int) -> None:
    assert both("code_debug", prediction, CODE) == (lenient, upstream)


def test_rouge_counts_united_subsequences_of_lines_once_per_word() -> None:
    assert rouge_lsum("The cat sat.", ["the cat sat"]) == 1.0
    assert rouge_lsum("w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", ["w1 w2 w3 w4 w5"]) == pytest.approx(2 * 0.8 * 0.4 / 1.2)
    assert rouge_lsum("a a a", ["a"]) == pytest.approx(0.5)
    assert rouge_lsum("x", ["y", "x"]) == 1.0
    assert rouge_lsum("...", ["..."]) == 0.0


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
def test_rouge_is_a_share_and_full_for_equal_texts(one: str, other: str) -> None:
    assert 0.0 <= rouge_lsum(one, [other]) <= 1.0
    assert rouge_lsum(one, [one]) == (1.0 if one.split() else 0.0)


@given(st.sampled_from(sorted(INF_TASKS)), st.text(max_size=60))
def test_no_output_ends_a_run(task: str, prediction: str) -> None:
    labels: tuple[Label, ...] = (7,) if task == "math_find" else ("Text", "B")
    for scorer in SCORERS:
        assert 0.0 <= score_prediction(scorer, task, prediction, labels).value <= 1.0


@pytest.mark.parametrize(
    ("task", "output", "prediction"),
    [
        ("longbook_choice_eng", "Rationale: x\nAnswer: B", "answer: B"),
        ("code_debug", "Answer: A\nAnswer: parse_date", "answer: parse_date"),
        ("code_debug", "Answer:B", "answer: "),
        ("longbook_qa_eng", "Answer: Paris\nConfidence Score: 5", "Paris\n"),
        ("longbook_qa_eng", "Paris", "Paris"),
        ("longbook_qa_chn", "答案： 灯塔\n置信分数：5", "灯塔\n"),
        ("longbook_choice_eng", "It is B", "It is B"),
        ("passkey", "Answer: 12345", "Answer: 12345"),
        ("math_find", "Answer: 97", "Answer: 97"),
    ],
)
def test_post_processing_cuts_the_answer_out(task: str, output: str, prediction: str) -> None:
    assert post_process(task, output) == prediction


def test_a_summary_counts_what_it_leaves_out() -> None:
    rows = [score_row("passkey", output, ("12345",), post_processed=True) for output in ("12345", "")]
    lines = summary_lines(rows, {"passkey": 3, "math_find": 1})
    assert lines[1].split()[:6] == ["PassKey[2]", "2", "3", "1", "0", "0"]
    assert "50.00" in lines[1]
    assert lines[2].split()[:3] == ["Math.Find[0]", "0", "1"]


def test_a_task_of_another_length_is_not_called_by_its_name_alone() -> None:
    row = score_row("passkey", "12345", ("12345",), post_processed=False)
    assert task_label("passkey", [row] * 590) == "PassKey"
    assert task_label("passkey", [row | {"length": "24K"}] * 590) == "PassKey/24K"
    assert task_label("passkey", [row | {"length": "24K"}] * 3) == "PassKey/24K[3]"


def test_a_file_of_predictions_is_scored_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "preds.jsonl"
    lines = [
        {"id": 0, "prediction": "12345\u2028", "ground_truth": ["12345"]},
        {"id": 1, "prediction": "", "ground_truth": ["12345"]},
        {"id": 2, "prediction": None, "ground_truth": ["12345"]},
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    done = CliRunner().invoke(app, ["score", "passkey", str(path), "--out", str(tmp_path / "scores.jsonl")])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[2].split()[:4] == ["PassKey[2]", "2", "1", "1"]
    assert len((tmp_path / "scores.jsonl").read_text("utf-8").split("\n")) == 2 + 1


def test_labels_may_come_from_the_released_file(tmp_path: Path) -> None:
    (tmp_path / "code_debug.jsonl").write_text(
        json.dumps({"id": 4, "context": "c", "input": "", "answer": ["f"], "options": ["e", "f", "g", "h"]}), "utf-8"
    )
    path = tmp_path / "preds.jsonl"
    path.write_text(json.dumps({"id": 4, "prediction": "Answer: B"}), "utf-8")
    [row], _ = score_predictions(path, "code_debug", tmp_path, post_processed=True)
    assert (row["lenient"], row["upstream"]) == (1.0, 1.0)
    with pytest.raises(CallerError, match="no label"):
        score_predictions(path, "code_debug", None, post_processed=True)
