"""Reduce: from the surviving findings to one answer, with the evidence of the findings it names."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.findings.answer import NOTHING, Conclusion, conclude, conclude_from_one, speaks_against
from pipeline.findings.finding import Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import TEXT, answer_schema, number_list, object_schema, parse_fields
from pipeline.mapreduce.collapse import MAX_NAMED, Collapse
from pipeline.mapreduce.conflicts import compare_pairwise, competing_findings

DECISIVE_PROBABILITY = 0.7
"""From here on a finding that none contradicts is the answer as it is: small models weigh worse than these numbers."""


async def reduce_findings(
    findings: Sequence[Finding], collapse: Collapse, letters: Sequence[str] = (), *, settling: bool = True
) -> Conclusion:
    """Conclude. Without findings there is nothing to ask, with a decisive one nothing to weigh.

    Findings that contradict each other are compared two by two, unless `settling` is off. All else is one call; if it
    fails, the most probable finding is the answer and a warning says so.
    """
    if not findings:
        return NOTHING
    best = max(findings, key=lambda finding: finding.probability)
    warning = ""
    if collapse.task.decisive:
        if len(findings) == 1 or _is_decisive(best, findings):
            return conclude_from_one(best, findings)
        rivals = competing_findings(best, findings) if settling else []
        settled = await compare_pairwise(best, rivals, collapse) if rivals else None
        if isinstance(settled, Finding):
            return conclude_from_one(settled, findings, rivals=[one for one in (best, *rivals) if one is not settled])
        if settled is not None:
            warning = f"Findings that contradict each other could not be compared: {settled.message}"
    call = _reduce_call(findings, collapse, letters)
    parsed = await complete_parsed(call, parse_fields, collapse.dispatcher, repairs=0)
    if not isinstance(parsed, CallFailed):
        if parsed.text("answer"):
            named = [findings[n - 1] for n in parsed.numbers("findings") if 1 <= n <= len(findings)]
            others = findings if collapse.task.decisive else ()  # parts of a whole do not contradict it
            return conclude(
                parsed.text("answer"), parsed.text("explanation"), named or list(findings), others, warning=warning
            )
        if not parsed.truncated:
            return NOTHING
    return conclude_from_one(best, findings, "The last step failed; this is the most probable single finding.")


def _is_decisive(best: Finding, findings: Sequence[Finding]) -> bool:
    contradicted = any(speaks_against(one, best.answer) for one in findings)
    return best.probability >= DECISIVE_PROBABILITY and not contradicted


def _reduce_call(findings: Sequence[Finding], collapse: Collapse, letters: Sequence[str]) -> Call:
    tokenizer, task = collapse.resources.tokenizer, collapse.task
    values = {"question": collapse.question_ids, "findings": collapse.render(findings)}
    named = number_list(len(findings), MAX_NAMED)
    fields = {"findings": named, "explanation": TEXT, "answer": answer_schema(letters, may_be_empty=False)}
    schema = object_schema(**{name: fields[name] for name in task.reduce_fields})
    sampling = Sampling(max_output_tokens=task.reduce_output_tokens, json_schema=schema)
    prompt = chat_prompt(tokenizer, own=[task.reduce.encode(tokenizer, values)])
    return collapse.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))
