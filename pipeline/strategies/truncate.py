"""Keep what fits one call and leave the rest unread: the control that every other strategy has to beat.

Keeps whole sentences, where benchmarks cut at a token, so that evidence can still point to them; says where text was
left out, in the prompt and in the answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from pipeline.chunks.split import NO_CHUNK, SMALLEST_CHUNK_TOKENS, Chunk, make_chunk, number_marker
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.llm.model import Call
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.run.run import encode_question
from pipeline.run.strategy import Resources
from pipeline.strategies.direct import (
    answer_in_one_call,
    direct_call,
    excess_tokens,
    plan_one_call,
    whole_call,
    whole_document,
)
from pipeline.tasks import load_prompt, task_for


class Keep(StrEnum):
    """Which part of a document stays."""

    ENDS = "both ends"
    HEAD = "the head"
    TAIL = "the tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    chunk: Chunk
    call: Call
    document_tokens: int
    left_out_tokens: int
    warning: str


class Truncate:
    """One call on both ends of the document, its head or its tail."""

    def __init__(self, name: str, keep: Keep) -> None:
        self.name = name
        self.steps = ("answer",)
        self.options = ()
        self._keep = keep

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        kept = self._cut(document, request, resources)
        share = 1 - kept.left_out_tokens / kept.document_tokens if kept.document_tokens else 1.0
        reason = f"keeps {self._keep}, {share:.0%} of the document" if kept.left_out_tokens else "the document fits"
        graph = f"flowchart LR\n    document --> cut[keep {self._keep}] --> direct[one call] --> answer"
        return plan_one_call(self.name, reason, kept.call, kept.document_tokens, graph)

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        kept = self._cut(document, request, resources)
        return await answer_in_one_call(
            document,
            kept.chunk,
            kept.call,
            request,
            resources,
            left_out_tokens=kept.left_out_tokens,
            warnings=[kept.warning] if kept.warning else [],
        )

    def _cut(self, document: Document, request: Request, resources: Resources) -> _Kept:
        tokenizer = resources.tokenizer
        whole, call = whole_document(document, tokenizer), whole_call(document, request, resources)
        total = len(whole.plain_token_ids)
        if excess_tokens(call, resources) <= 0:
            return _Kept(chunk=whole, call=call, document_tokens=total, left_out_tokens=0, warning="")
        task, question_ids = task_for(request.task, request.question), encode_question(request, resources)
        gap = load_prompt("truncate", "gap").encode(tokenizer, {"tokens": ()})
        empty = direct_call(NO_CHUNK, question_ids, task, request, tokenizer)
        room = resources.budget.room_tokens(
            # A digit takes one token at most.
            fixed_tokens=len(empty.prompt.token_ids) + len(gap) + len(str(total)),
            output_tokens=empty.sampling.max_output_tokens,
            min_tokens=2 * SMALLEST_CHUNK_TOKENS,  # each end holds the longest sentence
        )
        head, tail = kept_counts(_sizes(whole, room, tokenizer), room, self._keep)
        chunk, left_out = _without_middle(whole, head, tail, tokenizer)
        call = direct_call(chunk, question_ids, task, request, tokenizer)
        warning = _warning(whole, head, tail, left_out, total)
        return _Kept(chunk=chunk, call=call, document_tokens=total, left_out_tokens=left_out, warning=warning)


def kept_counts(sentence_tokens: Sequence[int], room_tokens: int, keep: Keep) -> tuple[int, int]:
    """How many sentences stay at the beginning and at the end, so that together they take at most `room_tokens`.

    Of both ends the head gets at most half; what it leaves free goes to the tail.
    """
    head_room = {Keep.ENDS: room_tokens // 2, Keep.HEAD: room_tokens, Keep.TAIL: 0}[keep]
    head = _fitting(sentence_tokens, head_room)
    if keep is Keep.HEAD:
        return head, 0
    return head, _fitting(reversed(sentence_tokens[head:]), room_tokens - sum(sentence_tokens[:head]))


def _fitting(sizes: Iterable[int], room: int) -> int:
    return sum(1 for total in accumulate(sizes) if total <= room)


def _sizes(whole: Chunk, room: int, tokenizer: Tokenizer) -> list[int]:
    """Tokens of each sentence with its number: that of the last sentence which could be kept, the longest."""
    plain = [len(sentence.token_ids) for sentence in whole.sentences]
    most = _fitting(sorted(tokens + 1 for tokens in plain), room)
    marker = len(tokenizer.encode_template(number_marker(10 ** len(str(most)) - 1)))
    return [tokens + marker for tokens in plain]


def _without_middle(whole: Chunk, head: int, tail: int, tokenizer: Tokenizer) -> tuple[Chunk, int]:
    """The kept sentences as one chunk, and how many tokens are left out where the gap stands."""
    last = len(whole.sentences) - tail
    left_out = sum(len(sentence.token_ids) for sentence in whole.sentences[head:last])
    chunk = make_chunk(0, whole.sentences[:head] + whole.sentences[last:], tokenizer)
    before = len(make_chunk(0, whole.sentences[:head], tokenizer).numbered_token_ids) if head else 0
    gap = load_prompt("truncate", "gap").encode(tokenizer, {"tokens": tokenizer.encode_template(str(left_out))})
    ids = array("I", chunk.numbered_token_ids)
    ids[before:before] = gap
    return replace(chunk, numbered_token_ids=ids), left_out


def _warning(whole: Chunk, head: int, tail: int, left_out: int, total: int) -> str:
    first, last = whole.sentences[head], whole.sentences[len(whole.sentences) - tail - 1]
    return (
        f"Only {1 - left_out / total:.0%} of the document was read: characters {first.span.start:,}-{last.span.end:,} "
        f"({left_out:,} of {total:,} tokens) were left out."
    )
