"""What a job's reading looked like: its tree, its evidence, and the text behind both."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway
from serving.api.native.citations import cite
from serving.api.native.jobs import FoundJob, refuse_ended
from serving.api.native.objects import JobDocument, place_documents
from serving.api.native.tree import JobTree, job_tree
from serving.jobs.events import RecordedRun

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

_MAX_TEXT_CHARS = 262_144
_PAGE_EVENTS = 2000


class EvidenceItem(BaseModel):
    """A quote and where it is; all places are None if it was not found."""

    n: int
    """Its number in the answer."""
    side: str
    """"answer", or "conflict" for a contradicting passage."""
    answer: str
    """What it is evidence for."""
    file_id: str | None
    document: str | None
    doc_version: str | None
    source: str | None
    line: int | None
    start: int | None
    end: int | None
    """`start` and `end` count code points through all documents of the job as one text."""
    file_start: int | None
    file_end: int | None
    chunk: int | None
    quote: str
    match: str
    """pointer: cited by sentence number, so exact; exact, normalised, fuzzy: copied; unlocated: not found."""
    similarity: float | None


class EvidenceList(BaseModel):
    object: str = "list"
    data: list[EvidenceItem]


class TextSlice(BaseModel):
    """A piece of a job's documents, which count as one text with an empty line between two."""

    object: str = "job.text"
    start: int
    end: int
    text: str
    total: int
    """Length of the whole text, in code points."""
    documents: list[JobDocument]


@router.get("/tree")
async def get_tree(job: FoundJob, gateway: CurrentGateway) -> JobTree:
    """One node per chunk, the collapses above them, the reduce at the top, as far as the run has come."""
    run = RecordedRun()
    while page := await gateway.store.events(job.id, after_seq=run.last_seq, limit=_PAGE_EVENTS):
        for record in page:
            run.add(record)
        if len(page) < _PAGE_EVENTS:
            break
    return job_tree(f"job_{job.id}", run, job.result)


@router.get("/evidence")
async def get_evidence(job: FoundJob) -> EvidenceList:
    """The quotes behind the answer, numbered, then those of contradicting passages."""
    refuse_ended(job)
    result = job.result or {}
    sides = [("answer", result)] + [("conflict", conflict) for conflict in result.get("conflicts", ())]
    found = [(side, about, quote) for side, about in sides for quote in about.get("evidence", ())]
    cited = cite([quote for _, _, quote in found], job.request.documents)
    return EvidenceList(
        data=[
            EvidenceItem(side=side, answer=about.get("answer", ""), **item)
            for (side, about, _), item in zip(found, cited, strict=True)
        ]
    )


@router.get("/text")
async def get_text(
    job: FoundJob,
    gateway: CurrentGateway,
    start: Annotated[int, Query(ge=0, le=2**40)] = 0,
    end: Annotated[int | None, Query(ge=0, le=2**40)] = None,
) -> TextSlice:
    """The code points [start, end) of the job's documents, at most 262,144; without `end`, as many as that."""
    refs = job.request.documents
    placed = place_documents(refs)
    total = placed[-1].start + placed[-1].characters if placed else 0
    first = min(total, start)
    last = max(first, min(total, first + _MAX_TEXT_CHARS if end is None else end))
    if last - first > _MAX_TEXT_CHARS:
        raise ApiError(422, f"At most {_MAX_TEXT_CHARS:,} characters at a time.", "too_much_text", "end")
    # Each document brings its share; between two, the same empty line from which `place_documents` counts.
    parts: list[str] = []
    for ref, document in zip(refs, placed, strict=True):
        begin = document.start
        if begin:
            parts.append("\n\n"[max(0, first - begin + 2) : max(0, last - begin + 2)])
        inside = max(0, first - begin), min(ref.characters, last - begin)
        if inside[0] < inside[1]:
            parts.append(await gateway.files.read_text(ref, *inside))
    return TextSlice(start=first, end=last, text="".join(parts), total=total, documents=placed)
