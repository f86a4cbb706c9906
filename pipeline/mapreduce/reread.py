"""A reduce that looks again: where its answer is doubtful, the model names parts to read once more, and what for.

Like the leader of LongAgent it sees findings and never the document; unlike it, it is asked only in doubt. What a part
says the second time stands in the place of what it said the first time, unless it then says nothing. Off by default:
docs/experiments.md has what it was worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.findings.answer import Conclusion
from pipeline.findings.finding import Finding
from pipeline.findings.render import ANSWER_TOKENS
from pipeline.llm.complete import complete_one
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import TEXT, number_list, object_schema, parse_fields
from pipeline.mapreduce.collapse import Collapse, collapse_findings, stream
from pipeline.mapreduce.read import Reading, ask_more
from pipeline.mapreduce.reduce import reduce_findings

DOUBTFUL_PROBABILITY = 0.5
MOST_ROUNDS = 2
MOST_PARTS = 3
_OUTPUT_TOKENS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """Parts to read again, by chunk index, and what for."""

    parts: tuple[int, ...]
    look_for: str


async def look_closer(
    findings: list[Finding], conclusion: Conclusion, reading: Reading, collapse: Collapse
) -> Conclusion:
    """Conclude again after parts were read again, as long as there is doubt, something to read, and a round left.

    The better conclusion of two stands: one that nothing contradicts, else the more probable one.
    """
    request, granted = reading.run.request, set[_Wish]()
    for _ in range(min(request.reread_rounds, MOST_ROUNDS)):
        if not findings or not _is_doubtful(conclusion):
            break
        wish = await _ask_for_parts(findings, conclusion, reading, collapse)
        if wish is None or wish in granted:
            break
        granted.add(wish)
        run = ask_more(reading.run, reading.run.task.closer, wish.look_for)
        found = await replace(reading, run=run).read_some(wish.parts)
        findings = await collapse_findings(stream(_exchange(findings, found)), collapse)
        again = await reduce_findings(findings, collapse, request.letters, settling=request.settle_conflicts)
        conclusion = max(conclusion, again, key=_standing)
    return conclusion


def _is_doubtful(conclusion: Conclusion) -> bool:
    return bool(conclusion.conflicts) or conclusion.probability < DOUBTFUL_PROBABILITY


def _standing(conclusion: Conclusion) -> tuple[bool, bool, float]:
    return bool(conclusion.text), not conclusion.conflicts, conclusion.probability


def _exchange(findings: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    """In document order; a finding that was merged from several parts stays beside those of its parts."""
    newer = {finding.chunk_indices: finding for finding in found}
    kept = [finding for finding in findings if finding.chunk_indices not in newer]
    return sorted([*kept, *found], key=lambda finding: finding.chunk_indices)


async def _ask_for_parts(
    findings: Sequence[Finding], conclusion: Conclusion, reading: Reading, collapse: Collapse
) -> _Wish | None:
    """What the model would have read again; None if nothing, or if the call failed: the answer stands as it is."""

    def read(completion: Completion) -> _Wish | None:
        parsed = parse_fields(completion)
        parts = sorted({number - 1 for number in parsed.numbers("parts") if 1 <= number <= collapse.chunks})
        look_for = parsed.text("look_for")
        return _Wish(parts=tuple(parts[:MOST_PARTS]), look_for=look_for) if parts and look_for else None

    call = _wish_call(findings, conclusion, collapse)
    wish = await complete_one(call, read, reading.run.meter, repairs=0)
    return None if isinstance(wish, CallFailed) else wish


def _wish_call(findings: Sequence[Finding], conclusion: Conclusion, collapse: Collapse) -> Call:
    """The most probable findings that fit are shown, in document order."""
    task, tokenizer = collapse.task, collapse.resources.tokenizer
    answer = tokenizer.encode_content(conclusion.text or "-")[:ANSWER_TOKENS]
    values = {"question": collapse.question_ids, "answer": answer}
    empty = chat_prompt(tokenizer, own=[task.reread.encode(tokenizer, {**values, "findings": ()})])
    room = collapse.resources.budget.room_tokens(fixed_tokens=len(empty.token_ids), output_tokens=_OUTPUT_TOKENS)
    shown: list[Finding] = []
    for finding in sorted(findings, key=lambda finding: -finding.probability):
        room -= collapse.size_tokens(finding)
        if room < 0:
            break
        shown.append(finding)
    shown.sort(key=lambda finding: finding.chunk_indices)
    prompt = task.reread.encode(tokenizer, {**values, "findings": collapse.render(shown)})
    schema = object_schema(look_for=TEXT, parts=number_list(collapse.chunks, MOST_PARTS))
    sampling = Sampling(max_output_tokens=_OUTPUT_TOKENS, json_schema=schema)
    return collapse.resources.budget.prove(
        Call(prompt=chat_prompt(tokenizer, own=[prompt]), sampling=sampling, stage=Stage.REDUCE)
    )
