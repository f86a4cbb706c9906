"""Collapse summaries, pass by pass, until they fit the prompt that writes the last one.

A pass merges neighbours in groups. Every pass must shrink the whole by a tenth, or the number of groups it needs;
else it is tried again with fewer words, and if that does not help either, all are trimmed alike and marked so. After
the map-reduce chain of LangChain, whose loop has no such test; differs too in balanced groups, in splitting a summary
that is longer than a prompt, and in carrying the chunks a summary was made from as data.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pipeline.errors import CollapseStalled
from pipeline.findings.finding import ChunkIndex, Evidence
from pipeline.llm.complete import at_once, complete_parsed
from pipeline.llm.model import Call, CallFailed, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import TEXT, WORDS_PER_TOKEN, ParsedFields, object_schema, parse_fields
from pipeline.llm.tokenizer import TokenIds, Tokenizer
from pipeline.run.events import Collapsed, StageStarted
from pipeline.run.run import Run
from pipeline.strategies.shared.grouping import balanced_groups, greedy_groups

MAX_PASSES = 8
USUAL_WORDS = 250
MIN_WORDS = 20
MIN_SHRINK = 0.9
"""Of the tokens before a pass; a pass that leaves more has not made progress, unless fewer groups are needed."""
_MIN_TRIMMED_TOKENS = 16
"""A summary trimmed below this says nothing; then only some are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary of some chunks, as token ids of untrusted text."""

    token_ids: TokenIds = field(metadata={"json_name": "text"})
    chunk_indices: tuple[ChunkIndex, ...]
    """What it was made from, ascending."""
    evidence: tuple[Evidence, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """The state between two passes."""

    summaries: tuple[Summary, ...]


@dataclass(slots=True, kw_only=True)
class SummaryCollapse:
    """What all passes of one run share, and what they had to give up."""

    run: Run
    max_tokens: int | None = None
    """Collapse beyond this, even where more would fit."""
    as_published: bool = False
    """Greedy groups, one call after another, no second attempt, no trimming: CollapseStalled at the last pass."""
    failed: list[CallFailed] = field(default_factory=list)
    """Groups whose call failed; their trimmed summaries stood in."""
    dropped: int = 0
    """Summaries for which there was no room even when trimmed."""
    calls: int = 0

    def limit_tokens(self) -> int:
        """Rendered summaries that fit the last prompt together."""
        return self._room_tokens(reduce_call([], self), self.run.task.reduce_output_tokens)

    def group_tokens(self) -> int:
        """Rendered summaries that fit one collapse prompt together."""
        return self._room_tokens(_collapse_call([], USUAL_WORDS, self), self.run.task.collapse_output_tokens)

    def _room_tokens(self, empty: Call, output_tokens: int) -> int:
        room = self.run.resources.budget.room_tokens(
            fixed_tokens=len(empty.prompt.token_ids), output_tokens=output_tokens, min_tokens=256
        )
        return min(room, self.max_tokens or room)

    def label_tokens(self) -> int:
        """What a summary's number and separator take at most."""
        return len(_rendered([array("I")], self.run.tokenizer, first=9999))

    def sizes(self, summaries: Sequence[Summary]) -> list[int]:
        label = self.label_tokens()
        return [len(summary.token_ids) + label for summary in summaries]

    def groups(self, summaries: Sequence[Summary]) -> list[range]:
        group = greedy_groups if self.as_published else balanced_groups
        return group(self.sizes(summaries), self.group_tokens())


async def collapse_summaries(summaries: Sequence[Summary], job: SummaryCollapse) -> list[Summary]:
    """Return summaries, in document order, that fit the last prompt together.

    Raises CollapseStalled in the published schedule only.
    """
    limit = job.limit_tokens()
    kept = list(summaries)
    for depth in range(1, MAX_PASSES + 1):
        if sum(job.sizes(kept)) <= limit:
            return kept
        kept = list(job.run.step("collapse", Summaries(summaries=tuple(kept))).summaries)
        if sum(job.sizes(kept)) <= limit:  # by hand
            return kept
        kept = [piece for summary in kept for piece in split_summary(summary, job)]
        groups = job.groups(kept)
        merged = await _merge_groups(kept, groups, USUAL_WORDS, depth, job)
        if not job.as_published and not _progressed(kept, groups, merged, job):
            words = max(MIN_WORDS, int(limit / 2 / len(groups) * WORDS_PER_TOKEN))
            merged = await _merge_groups(kept, groups, min(words, USUAL_WORDS // 2), depth, job)
            if not _progressed(kept, groups, merged, job):
                return _trim_all(merged, job)
        kept = merged
    if sum(job.sizes(kept)) > limit and job.as_published:
        raise CollapseStalled(f"The summaries still do not fit after {MAX_PASSES} passes.")
    return _trim_all(kept, job)


def split_summary(summary: Summary, job: SummaryCollapse) -> list[Summary]:
    """Equal pieces that fit a collapse prompt; most often the summary itself."""
    room = job.group_tokens() - job.label_tokens()
    ids = summary.token_ids
    count = max(1, -(-len(ids) // room))
    borders = [len(ids) * place // count for place in range(count + 1)]
    return [replace(summary, token_ids=ids[start:end]) for start, end in pairwise(borders)]


def trim(summaries: Sequence[Summary], room_tokens: int, label_tokens: int) -> list[Summary]:
    """Shorten all by the same share until they fit; evenly chosen ones where a share would say nothing."""
    kept = list(summaries)
    if sum(len(summary.token_ids) + label_tokens for summary in kept) <= room_tokens:
        return kept
    most = max(1, room_tokens // (label_tokens + _MIN_TRIMMED_TOKENS))
    if len(kept) > most:
        kept = [kept[place * len(kept) // most] for place in range(most)]
    total = sum(len(summary.token_ids) for summary in kept)
    room = room_tokens - len(kept) * label_tokens
    if total <= room:
        return kept
    return [
        replace(summary, token_ids=summary.token_ids[: len(summary.token_ids) * room // total], truncated=True)
        for summary in kept
    ]


def _trim_all(summaries: list[Summary], job: SummaryCollapse) -> list[Summary]:
    kept = trim(summaries, job.limit_tokens(), job.label_tokens())
    job.dropped += len(summaries) - len(kept)
    return kept


def _progressed(before: list[Summary], groups: list[range], after: list[Summary], job: SummaryCollapse) -> bool:
    total = sum(job.sizes(after))
    if total <= job.limit_tokens() or total <= MIN_SHRINK * sum(job.sizes(before)):
        return True
    pieces = [piece for summary in after for piece in split_summary(summary, job)]
    return len(job.groups(pieces)) < len(groups)


async def _merge_groups(
    summaries: list[Summary], groups: list[range], words: int, depth: int, job: SummaryCollapse
) -> list[Summary]:
    """One summary per group, in order. A group of one stands as it is, unless fewer words are wanted."""
    members = [[summaries[index] for index in group] for group in groups]
    asked = [place for place, group in enumerate(members) if len(group) > 1 or job.as_published or words < USUAL_WORDS]
    calls = [job.run.resources.budget.check_fits(_collapse_call(members[place], words, job)) for place in asked]
    job.calls += len(calls)
    job.run.resources.emit(StageStarted(stage=Stage.COLLAPSE, calls=job.calls))
    asking = (complete_parsed(call, parse_fields, job.run.meter) for call in calls)
    outcomes = [await each for each in asking] if job.as_published else await at_once(asking)
    merged = {place: group[0] for place, group in enumerate(members)}
    for place, outcome in zip(asked, outcomes, strict=True):
        merged[place] = _merged(members[place], outcome, job)
        text = job.run.tokenizer.decode(merged[place].token_ids)
        job.run.resources.emit(Collapsed(depth=depth, chunk_indices=merged[place].chunk_indices, text=text))
    return [merged[place] for place in range(len(members))]


def _merged(group: list[Summary], outcome: ParsedFields | CallFailed, job: SummaryCollapse) -> Summary:
    """The model's, or what there was, trimmed to as much: a lost call must not lose what was read."""
    tokenizer = job.run.tokenizer
    if isinstance(outcome, ParsedFields) and outcome.text("answer"):
        ids = tokenizer.encode_content(outcome.text("answer"))
        truncated = outcome.truncated
    else:
        if isinstance(outcome, CallFailed):
            job.failed.append(outcome)
        separator = tokenizer.encode_template("\n")
        ids = array("I")
        kept = trim(group, job.run.task.collapse_output_tokens, len(separator))
        job.dropped += len(group) - len(kept)
        for summary in kept:
            ids.extend(summary.token_ids)
            ids.extend(separator)
        truncated = True
    return Summary(
        token_ids=ids,
        chunk_indices=tuple(sorted({index for summary in group for index in summary.chunk_indices})),
        evidence=tuple(dict.fromkeys(quote for summary in group for quote in summary.evidence)),
        truncated=truncated or any(summary.truncated for summary in group),
    )


def reduce_call(summaries: Sequence[Summary], job: SummaryCollapse) -> Call:
    """Ask for the last summary."""
    values = {"question": job.run.question_ids, "summaries": _listed(summaries, job)}
    return _call(Stage.REDUCE, values, job.run.task.reduce_output_tokens, job)


def _collapse_call(group: Sequence[Summary], words: int, job: SummaryCollapse) -> Call:
    shown = job.run.tokenizer.encode_template(str(words))
    values = {"question": job.run.question_ids, "summaries": _listed(group, job), "words": shown}
    return _call(Stage.COLLAPSE, values, job.run.task.collapse_output_tokens, job)


def _call(stage: Stage, values: dict[str, Sequence[int]], output_tokens: int, job: SummaryCollapse) -> Call:
    tokenizer = job.run.tokenizer
    return Call(
        prompt=chat_prompt(tokenizer, own=[job.run.prompt("summarize", stage.value).encode(tokenizer, values)]),
        sampling=Sampling(max_output_tokens=output_tokens, json_schema=object_schema(answer=TEXT)),
        stage=stage,
    )


def _listed(summaries: Sequence[Summary], job: SummaryCollapse) -> array[int]:
    return _rendered([summary.token_ids for summary in summaries], job.run.tokenizer)


def _rendered(texts: Sequence[Sequence[int]], tokenizer: Tokenizer, first: int = 1) -> array[int]:
    ids = array("I")
    for number, text in enumerate(texts, start=first):
        ids.extend(tokenizer.encode_template(f"{number}. "))
        ids.extend(text)
        ids.extend(tokenizer.encode_template("\n"))
    return ids
