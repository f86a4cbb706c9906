"""Two parts that say different things: can both be true, and if not, which is to be believed?

The model reads the two quotes alone, beside the question, and says one token. Each question is asked in both orders
and the log-odds are added: a small model prefers a place, first or second, more than a text, and what it thinks of
the texts is what is left when the places cancel out. A call that weighed the same pairs in prose was right about as
often as a coin (docs/experiments.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline.findings.finding import Finding
from pipeline.findings.render import QUOTES_TOKENS
from pipeline.llm.complete import at_once, yes_score
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import PromptTemplate, chat_prompt
from pipeline.mapreduce.collapse import Collapse
from pipeline.text import same_answer

RIVAL_NATS = 2.0
"""A finding is a rival of the best one if its log-odds of being right are at most this much lower: the comparison of
two texts is right more often than such a difference."""
MAX_RIVALS = 3
CALLS_PER_RIVAL = 4
_FIRST, _SECOND = "A", "B"


def competing_findings(best: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """The most probable finding for each other answer that comes close to `best`, most probable first."""
    rivals: list[Finding] = []
    for finding in sorted(findings, key=lambda finding: -finding.probability):
        known = [best, *rivals]
        if (
            _is_close(finding, best)
            and finding.located_quotes
            and not any(same_answer(one.answer, finding.answer) for one in known)
        ):
            rivals.append(finding)
    return rivals[:MAX_RIVALS] if best.located_quotes else []


async def compare_pairwise(best: Finding, rivals: Sequence[Finding], collapse: Collapse) -> Finding | CallFailed | None:
    """Return the one that stands against all others; None if two of them can be true together, or a failed call."""
    for rival in rivals:
        outcomes = await at_once(map(collapse.dispatcher.complete, _calls(best, rival, collapse)))
        failed = next((outcome for outcome in outcomes if isinstance(outcome, CallFailed)), None)
        if failed is not None:
            return failed
        compatible, swapped, first, second = [yes_score(one) for one in outcomes if isinstance(one, Completion)]
        if compatible + swapped >= collapse.task.compatible_nats:
            return None
        if first < second:
            best = rival
    return best


def _calls(best: Finding, rival: Finding, collapse: Collapse) -> list[Call]:
    """Whether both can be true, in both orders; then which is to be believed, in both orders."""
    task, tokenizer = collapse.task, collapse.resources.tokenizer
    texts = [tokenizer.encode_content("\n".join(finding.located_quotes))[:QUOTES_TOKENS] for finding in (best, rival)]

    def call(template: PromptTemplate, choices: tuple[str, str], one: Sequence[int], other: Sequence[int]) -> Call:
        own = template.encode(tokenizer, {"question": collapse.question_ids, "one": one, "other": other})
        sampling = Sampling(max_output_tokens=1, choices=choices)
        return collapse.resources.budget.check_fits(
            Call(prompt=chat_prompt(tokenizer, own=[own]), sampling=sampling, stage=Stage.REDUCE)
        )

    return [
        call(template, choices, *order)
        for template, choices in ((task.compatible, (task.yes, task.no)), (task.settle, (_FIRST, _SECOND)))
        for order in (texts, texts[::-1])
    ]


def _is_close(finding: Finding, best: Finding) -> bool:
    """By `RIVAL_NATS`, written as a product: the odds of a certain finding are infinite."""
    p, q = finding.probability, best.probability
    return q * (1 - p) <= math.exp(RIVAL_NATS) * p * (1 - q)
