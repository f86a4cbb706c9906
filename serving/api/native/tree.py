"""The tree of a run, put together from its events: chunks, the collapses above them, the reduce at the top."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel

from serving.jobs.job import EventRecord

ChunkState = Literal["waiting", "gated", "mapped", "empty", "failed"]


class ChunkNode(BaseModel):
    """One chunk. Gated: its relevance was scored, it was not read closely (yet)."""

    id: str
    chunk: int
    span: tuple[int, int]
    state: ChunkState = "waiting"
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


class TreeBuilder:
    """Takes events in order; the tree can be taken at any time."""

    def __init__(self) -> None:
        self._chunks: dict[int, ChunkNode] = {}
        self._collapses: list[CollapseNode] = []
        self._reduce = ReduceNode()
        self._stages: dict[str, StageNode] = {}
        self._last_seq = 0

    def add(self, events: Iterable[EventRecord]) -> None:
        takes = {
            "split": self._split,
            "stage.started": self._stage_started,
            "call.finished": self._call_finished,
            "chunk.gated": self._chunk_gated,
            "chunk.mapped": self._chunk_mapped,
            "collapsed": self._collapsed,
            "provisional": self._answered,
        }
        for event in events:
            self._last_seq = event.seq
            if take := takes.get(event.kind):
                take(dict(event.data))

    def tree(self, job_id: str, result: dict[str, Any] | None) -> JobTree:
        if result is not None:
            self._answered(result)
            self._reduce.state = "ok"
        above = {chunk for node in self._collapses for chunk in node.chunks}
        loose = [node.id for node in self._chunks.values() if node.state == "mapped" and node.chunk not in above]
        claimed = {child for node in self._collapses for child in node.children}
        self._reduce.children = [node.id for node in self._collapses if node.id not in claimed] + loose
        chunks = [self._chunks[index] for index in sorted(self._chunks)]
        return JobTree(
            id=job_id,
            last_seq=self._last_seq,
            chunks=chunks,
            collapses=self._collapses,
            reduce=self._reduce,
            stages=list(self._stages.values()),
        )

    def _split(self, data: dict[str, Any]) -> None:
        self._chunks = {
            index: ChunkNode(id=_chunk_id(index), chunk=index, span=(span[0], span[1]))
            for index, span in enumerate(data["spans"])
        }

    def _stage(self, name: str) -> StageNode:
        return self._stages.setdefault(name, StageNode(stage=name))

    def _stage_started(self, data: dict[str, Any]) -> None:
        self._stage(data["stage"]).calls = data["calls"]
        if data["stage"] in ("reduce", "direct"):
            self._reduce.state = "running"

    def _call_finished(self, data: dict[str, Any]) -> None:
        stage, failed = self._stage(data["stage"]), data["state"] == "failed"
        stage.done += 1
        stage.failed += failed
        stage.from_journal += bool(data["cached"])
        stage.tokens = _added(stage.tokens, data["tokens"])
        if stage.stage == "reduce":
            self._reduce.state = "failed" if failed else "ok"
        chunk = self._chunks.get(data["chunk"]) if data["chunk"] is not None else None
        if chunk is None:
            return
        chunk.tokens = _added(chunk.tokens, data["tokens"])
        if failed and stage.stage in ("map", "gate"):
            chunk.state, chunk.error = "failed", data["error"]

    def _chunk_gated(self, data: dict[str, Any]) -> None:
        if chunk := self._chunks.get(data["chunk"]):
            chunk.score = data["score"]
            if chunk.state == "waiting":
                chunk.state = "gated"

    def _chunk_mapped(self, data: dict[str, Any]) -> None:
        if (chunk := self._chunks.get(data["chunk"])) is None:
            return
        chunk.state = "empty" if data["empty"] else "mapped"
        chunk.answer, chunk.error = data["answer"], ""
        chunk.confidence, chunk.probability = data["confidence"], data["probability"]
        chunk.evidence = data["evidence"]

    def _collapsed(self, data: dict[str, Any]) -> None:
        chunks = list(data["chunks"])
        covered = set(chunks)
        taken = {child for node in self._collapses for child in node.children}
        inner = [n for n in self._collapses if n.id not in taken and n.depth < data["depth"] and covered >= {*n.chunks}]
        loose = covered - {chunk for node in inner for chunk in node.chunks}
        children = [node.id for node in inner] + [_chunk_id(chunk) for chunk in sorted(loose)]
        name = f"c-{data['depth']}-{len(self._collapses)}"
        self._collapses.append(CollapseNode(id=name, depth=data["depth"], chunks=chunks, children=children))

    def _answered(self, data: dict[str, Any]) -> None:
        self._reduce.answer = data.get("answer", "")
        self._reduce.confidence = data.get("confidence")
        self._reduce.probability = data.get("probability")


def _chunk_id(index: int) -> str:
    return f"m-{index:04}"


def _added(tokens: list[int], more: list[int]) -> list[int]:
    return [one + other for one, other in zip(tokens, more, strict=True)]
