"""Collapse: merge neighbouring findings until all fit one reduce prompt.

Nothing waits for a barrier. As soon as the findings so far exceed the reduce prompt, collapsing is certain, and a
group of neighbours starts the moment it is full, while later chunks are still being mapped; rounds overlap likewise.
Groups are formed by place in the document, never by arrival, so a run repeats exactly.
After LLM×MapReduce (arXiv 2410.09342); differs in carrying evidence beside the prompt, by pointer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.errors import CollapseStalled, ContextTooSmall
from pipeline.findings.evidence import MAX_EVIDENCE, merge_evidence
from pipeline.findings.finding import Finding
from pipeline.findings.render import RENDERED_TOKENS, join_rendered, render_finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Dispatcher, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import CONFIDENCE, TEXT, number_list, object_schema, parse_fields
from pipeline.run.events import Collapsed
from pipeline.run.strategy import Resources
from pipeline.tasks import Task

MAX_NAMED = 6
MAX_ROUNDS = 12
"""More than any document needs: each round at least halves the number of findings that do not fit."""


@dataclass(slots=True, kw_only=True)
class Collapse:
    """What all rounds of one run share."""

    question_ids: Sequence[int]
    task: Task
    chunks: int
    dispatcher: Dispatcher
    resources: Resources
    step: Callable[[AsyncIterator[Finding]], AsyncIterator[Finding]] = lambda findings: findings
    """Sees the findings that a round begins from, and hands them on, or others in their place."""
    failed: list[CallFailed] = field(default_factory=list)
    """Groups whose call failed; the best finding of each stood in for it."""
    dropped: int = 0
    """Findings that such a stand-in replaced."""
    _sizes: dict[Finding, int] = field(default_factory=dict)

    def reduce_room_tokens(self) -> int:
        """Tokens of rendered findings that fit one reduce prompt."""
        return self._room_tokens(Stage.REDUCE)

    def group_room_tokens(self) -> int:
        return self._room_tokens(Stage.COLLAPSE)

    def _room_tokens(self, stage: Stage) -> int:
        tokenizer = self.resources.tokenizer
        template = self.task.reduce if stage is Stage.REDUCE else self.task.collapse
        output = self.task.reduce_output_tokens if stage is Stage.REDUCE else self.task.collapse_output_tokens
        empty = chat_prompt(
            tokenizer, own=[template.encode(tokenizer, {"question": self.question_ids, "findings": ()})]
        )
        room = self.resources.budget.room_tokens(fixed_tokens=len(empty.token_ids), output_tokens=output)
        if room < 3 * RENDERED_TOKENS:  # fewer would not shrink
            raise ContextTooSmall(
                f"Only {room} tokens are left for findings beside the question; at least {3 * RENDERED_TOKENS} are "
                "needed. Shorten the question or serve the model with a larger context."
            )
        return room

    def render(self, findings: Sequence[Finding]) -> Sequence[int]:
        """Numbered from 1, as they stand in a prompt."""
        tokenizer = self.resources.tokenizer
        return join_rendered(
            [render_finding(one, n, self.chunks, tokenizer) for n, one in enumerate(findings, start=1)], tokenizer
        )

    def size_tokens(self, finding: Finding) -> int:
        """As rendered under the longest label, with its separator. Asked for more than once, rendered once."""
        if finding not in self._sizes:
            self._sizes[finding] = len(render_finding(finding, 9999, self.chunks, self.resources.tokenizer)) + 2
        return self._sizes[finding]


async def collapse_findings(findings: AsyncIterator[Finding], collapse: Collapse, depth: int = 1) -> list[Finding]:
    """Return findings, in document order, that fit one reduce prompt together.

    Raises CollapseStalled if they never do; that cannot happen while every finding renders within RENDERED_TOKENS.
    A group whose call fails is replaced by its most probable finding, and counted.
    """
    kept, fit = await _take_until_full(findings, collapse)
    if fit:
        return kept
    if depth > MAX_ROUNDS:
        raise CollapseStalled
    findings = collapse.step(_chain(kept, findings))
    kept, fit = await _take_until_full(findings, collapse)
    if fit:  # others were put in their place
        return kept
    return await collapse_findings(_merged_groups(_chain(kept, findings), collapse, depth), collapse, depth + 1)


async def stream(findings: Iterable[Finding]) -> AsyncIterator[Finding]:
    """Findings that are all known, for where they are waited for."""
    for finding in findings:
        yield finding


async def _take_until_full(findings: AsyncIterator[Finding], collapse: Collapse) -> tuple[list[Finding], bool]:
    """Those that were taken; and whether they are all, and fit one reduce prompt."""
    room = collapse.reduce_room_tokens()
    taken: list[Finding] = []
    tokens = 0
    async for finding in findings:
        taken.append(finding)
        tokens += collapse.size_tokens(finding)
        if tokens > room:
            return taken, False
    return taken, True


async def _chain(first: list[Finding], rest: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    for finding in first:
        yield finding
    async for finding in rest:
        yield finding


async def _merged_groups(findings: AsyncIterator[Finding], collapse: Collapse, depth: int) -> AsyncIterator[Finding]:
    """Yield one finding per group, in order; up to all groups are under way at once."""
    running: deque[asyncio.Task[Finding]] = deque()
    try:
        async for group in _full_groups(findings, collapse):
            running.append(asyncio.create_task(_merge_group(group, collapse, depth)))
            while running and running[0].done():
                yield running.popleft().result()
        while running:
            yield await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _full_groups(findings: AsyncIterator[Finding], collapse: Collapse) -> AsyncIterator[list[Finding]]:
    """Contiguous groups that fill a collapse prompt; only the last may be smaller."""
    room = collapse.group_room_tokens()
    group: list[Finding] = []
    tokens = 0
    async for finding in findings:
        size = collapse.size_tokens(finding)
        if group and tokens + size > room:
            yield group
            group, tokens = [], 0
        group.append(finding)
        tokens += size
    if group:
        yield group


async def _merge_group(group: list[Finding], collapse: Collapse, depth: int) -> Finding:
    if len(group) == 1:
        return group[0]
    merged = await _merge_by_model(group, collapse)
    indices = tuple(sorted({index for finding in group for index in finding.chunk_indices}))
    text = merged.answer if merged else ""
    collapse.resources.emit(Collapsed(depth=depth, chunk_indices=indices, text=text))
    if merged is None or merged.is_empty:  # a merge must not lose everything
        collapse.dropped += len(group) - 1
        return max(group, key=lambda finding: finding.probability)
    return replace(merged, chunk_indices=indices)


async def _merge_by_model(group: list[Finding], collapse: Collapse) -> Finding | None:
    parsed = await complete_parsed(_collapse_call(group, collapse), parse_fields, collapse.dispatcher, repairs=0)
    if isinstance(parsed, CallFailed):
        collapse.failed.append(parsed)
        return None
    named = [group[number - 1] for number in parsed.numbers("findings") if 1 <= number <= len(group)]
    return _merged(named or group, parsed.text("rationale"), parsed.text("answer"), parsed.confidence())


def _merged(named: list[Finding], rationale: str, answer: str, confidence: int) -> Finding:
    best = max(named, key=lambda finding: finding.probability)
    return Finding(
        chunk_indices=best.chunk_indices,
        evidence=merge_evidence(named, MAX_EVIDENCE),
        rationale=rationale,
        answer=answer,
        stated_confidence=confidence,
        gate_score=best.gate_score,
        support_score=best.support_score,
        probability=best.probability,
    )


def _collapse_call(group: list[Finding], collapse: Collapse) -> Call:
    tokenizer, task = collapse.resources.tokenizer, collapse.task
    values = {"question": collapse.question_ids, "findings": collapse.render(group)}
    schema = object_schema(
        findings=number_list(len(group), MAX_NAMED), rationale=TEXT, answer=TEXT, confidence=CONFIDENCE
    )
    sampling = Sampling(max_output_tokens=task.collapse_output_tokens, json_schema=schema)
    prompt = chat_prompt(tokenizer, own=[task.collapse.encode(tokenizer, values)])
    return collapse.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.COLLAPSE))
