"""The tree of a run: chunks, the collapses above them, the reduce at the top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from pipeline.findings.answer import confidence_of
from pipeline.llm.model import Stage, Usage
from pipeline.run.events import Collapsed
from pipeline.run.state import ChunkOutcome, ChunkState, RunState
from serving.jobs.events import RecordedRun, evidence_records


class ChunkNode(BaseModel):
    """One chunk. Gated: its relevance was scored, it was not read closely (yet)."""

    id: str
    chunk: int
    span: tuple[int, int]
    state: ChunkOutcome = ChunkOutcome.WAITING
    score: float | None = None
    """Of the gate: log-odds that it is relevant; comparable within a document only."""
    answer: str = ""
    confidence: int | None = None
    probability: float | None = None
    evidence: list[dict[str, Any]] = []
    tokens: list[int] = [0, 0, 0]
    """Prompt, of these cached, output; of all calls on this chunk."""
    error: str = ""


class CollapseNode(BaseModel):
    id: str
    depth: int
    chunks: list[int]
    children: list[str]


class ReduceNode(BaseModel):
    id: Literal["reduce"] = "reduce"
    state: Literal["waiting", "running", "ok", "failed"] = "waiting"
    children: list[str] = []
    answer: str = ""
    confidence: int | None = None
    probability: float | None = None


class StageNode(BaseModel):
    stage: str
    calls: int | None = None
    done: int = 0
    failed: int = 0
    from_journal: int = 0
    tokens: list[int] = [0, 0, 0]


class JobTree(BaseModel):
    """`last_seq` is the last event in it: events after that one lead on from here."""

    id: str
    object: Literal["job.tree"] = "job.tree"
    last_seq: int
    chunks: list[ChunkNode]
    collapses: list[CollapseNode]
    reduce: ReduceNode
    stages: list[StageNode]


def job_tree(job_id: str, run: RecordedRun, result: Mapping[str, Any] | None) -> JobTree:
    """The tree of a run as far as it has come; `result` is its job's, if it has one."""
    state = run.state
    chunks = {index: _chunk_node(index, chunk) for index, chunk in enumerate(state.chunks) if chunk.span is not None}
    collapses = _collapse_nodes(state.collapses)
    above = {chunk for node in collapses for chunk in node.chunks}
    claimed = {child for node in collapses for child in node.children}
    loose = [node.id for node in chunks.values() if node.state == "mapped" and node.chunk not in above]
    reduce = _reduce_node(state, result)
    reduce.children = [node.id for node in collapses if node.id not in claimed] + loose
    return JobTree(
        id=job_id,
        last_seq=run.last_seq,
        chunks=list(chunks.values()),
        collapses=collapses,
        reduce=reduce,
        stages=[
            StageNode(
                stage=stage.value,
                calls=at.calls,
                done=at.done,
                failed=at.failed,
                from_journal=at.from_journal,
                tokens=_tokens(at.usage),
            )
            for stage, at in state.stages.items()
        ],
    )


def _chunk_node(index: int, chunk: ChunkState) -> ChunkNode:
    assert chunk.span is not None
    finding = chunk.finding
    return ChunkNode(
        id=_chunk_id(index),
        chunk=index,
        span=(chunk.span.start, chunk.span.end),
        state=chunk.outcome,
        score=chunk.score,
        answer=finding.answer if finding else "",
        confidence=confidence_of(finding.probability) if finding else None,
        probability=finding.probability if finding else None,
        evidence=evidence_records(finding.evidence) if finding else [],
        tokens=_tokens(chunk.usage),
        error=chunk.error,
    )


def _collapse_nodes(collapses: Iterable[Collapsed]) -> list[CollapseNode]:
    """A collapse stands above those before it whose chunks it covers, and above the chunks that none of them has."""
    nodes: list[CollapseNode] = []
    for number, collapse in enumerate(collapses):
        covered = set(collapse.chunk_indices)
        taken = {child for node in nodes for child in node.children}
        inner = [n for n in nodes if n.id not in taken and n.depth < collapse.depth and covered >= {*n.chunks}]
        loose = covered - {chunk for node in inner for chunk in node.chunks}
        nodes.append(
            CollapseNode(
                id=f"c-{collapse.depth}-{number}",
                depth=collapse.depth,
                chunks=list(collapse.chunk_indices),
                children=[node.id for node in inner] + [_chunk_id(chunk) for chunk in sorted(loose)],
            )
        )
    return nodes


def _reduce_node(state: RunState, result: Mapping[str, Any] | None) -> ReduceNode:
    if result is not None:
        answer, confidence, probability = (result.get(name) for name in ("answer", "confidence", "probability"))
        return ReduceNode(state="ok", answer=answer or "", confidence=confidence, probability=probability)
    node = ReduceNode()
    if state.answer is not None:
        node.answer, node.confidence = state.answer.text, state.answer.confidence
        node.probability = state.answer.probability
    last = state.stages.get(Stage.REDUCE)
    if last is not None and last.done:
        node.state = "failed" if last.last_failed else "ok"
    elif last is not None or Stage.DIRECT in state.stages:
        node.state = "running"
    return node


def _chunk_id(index: int) -> str:
    return f"m-{index:04}"


def _tokens(usage: Usage) -> list[int]:
    return [usage.prompt_tokens, usage.cached_tokens, usage.output_tokens]
