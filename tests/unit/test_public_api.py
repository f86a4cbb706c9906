"""What `import pipeline` offers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pipeline
from tests.factories import fact_document, make_resources, make_tokenizer, reading_script

FACT = "The lighthouse keeper was called Odalys Brand."


def test_every_public_name_is_there_and_no_other() -> None:
    for name in pipeline.__all__:
        assert getattr(pipeline, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'answer'"):
        _ = pipeline.answer  # type: ignore[attr-defined]


def test_a_question_is_asked_without_an_event_loop() -> None:
    resources = make_resources(reading_script(make_tokenizer(), [(FACT, "Odalys Brand")]))
    request = pipeline.Request(question="What was the lighthouse keeper called?", strategy="mapreduce")
    document = fact_document({7: FACT})
    assert pipeline.plan(document, request, resources).strategy == "mapreduce"
    assert pipeline.ask_sync(document, request, resources).text == "Odalys Brand"


def test_a_part_is_imported_without_the_whole() -> None:
    tree = ast.parse(Path(pipeline.__file__).read_text("utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node).split()[1] for node in at_once} == {"__future__", "importlib", "typing"}
