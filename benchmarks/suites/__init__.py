"""What can be measured; one file and one line each."""

from __future__ import annotations

from benchmarks.bench import Suite
from benchmarks.suites import ask, gate, second_question, split

SUITES: dict[str, Suite] = {
    "gate": gate.SUITE,
    "ask": ask.SUITE,
    "second_question": second_question.SUITE,
    "split": split.SUITE,
}
