"""Steps are short while an answer is written, and full otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.llm.model import PRIORITY, Stage
from serving.replicas.pace_steps import PROMPT_TOKENS_BESIDE_AN_ANSWER, pace_steps


@dataclass
class Running:
    """As vLLM's scheduler shows a call."""

    priority: int
    num_output_tokens: int


@dataclass
class Scheduler:
    max_num_scheduled_tokens: int = 512
    running: list[Running] = field(default_factory=list)


def test_only_while_an_answer_is_written_steps_are_short() -> None:
    scheduler = Scheduler()
    before_step = pace_steps(scheduler)
    reading = Running(PRIORITY[Stage.DIRECT], num_output_tokens=0)
    finding = Running(PRIORITY[Stage.MAP], num_output_tokens=9)
    for running, tokens in (
        ([finding], 512),
        ([finding, reading], 512),
        ([finding, Running(PRIORITY[Stage.DIRECT], 1)], 2 + PROMPT_TOKENS_BESIDE_AN_ANSWER),
        ([Running(PRIORITY[Stage.REDUCE], 1)], 1 + PROMPT_TOKENS_BESIDE_AN_ANSWER),
        ([finding] * 600 + [Running(PRIORITY[Stage.REDUCE], 1)], 512),
        ([], 512),
    ):
        scheduler.running = running
        before_step()
        assert scheduler.max_num_scheduled_tokens == tokens
