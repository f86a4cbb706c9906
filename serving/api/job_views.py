"""What a job's reading looked like: its tree, its evidence, and the text behind both."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from serving.api.errors import ApiError
from serving.api.gateway import CurrentGateway
from serving.api.job_objects import JobDocument, place_documents
from serving.api.job_text import JobText, Unit
from serving.api.job_tree import JobTree, TreeBuilder
from serving.api.jobs import FoundJob, refuse_ended
from serving.jobs.job import Job

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

_LONGEST_TEXT_CHARS = 262_144
_PAGE_EVENTS = 2000


class EvidenceItem(BaseModel):
    """A quote and where it stands; start and end are None if it was not found."""

    n: int
    """Its number in the answer."""
    side: str
    """"answer", or "conflict" for what speaks against it."""
    answer: str
    """What it is evidence for."""
    file_id: str | None
    doc_version: str | None
    source: str | None
    line: int | None
    start: int | None
    end: int | None
    unit: Unit
    chunk: int | None
    quote: str
    match: str
    """pointer: named by number, so exact; exact, normalised, fuzzy: copied; unlocated: not found."""
    similarity: float | None


class EvidenceList(BaseModel):
    object: str = "list"
    unit: Unit
    data: list[EvidenceItem]


class TextSlice(BaseModel):
    """A piece of a job's documents, which count as one text with an empty line between two."""

    object: str = "job.text"
    unit: Unit
    start: int
    end: int
    text: str
    total: int
    """Length of the whole text, in `unit`."""
    documents: list[JobDocument]
    """Their `start` counts code points."""


@router.get("/tree")
async def get_tree(job: FoundJob, gateway: CurrentGateway) -> JobTree:
    """One node per chunk, the collapses above them, the reduce at the top, as far as the run has come."""
    builder = TreeBuilder()
    seq = 0
    while page := await gateway.store.events(job.id, after_seq=seq, limit=_PAGE_EVENTS):
        builder.add(page)
        seq = page[-1].seq
        if len(page) < _PAGE_EVENTS:
            break
    return builder.tree(f"job_{job.id}", dict(job.result) if job.result else None)


@router.get("/evidence")
async def get_evidence(job: FoundJob, request: Request, unit: Unit = "codepoint") -> EvidenceList:
    """The quotes behind the answer, numbered, then those behind what speaks against it."""
    refuse_ended(job)
    result = job.result or {}
    sides = [("answer", result)] + [("conflict", conflict) for conflict in result.get("conflicts", ())]
    items = [
        await _evidence_item(_texts(request), job, found, unit, side=side, answer=about.get("answer", ""))
        for side, about in sides
        for found in about.get("evidence", ())
    ]
    for number, item in enumerate(items, start=1):
        item.n = number
    return EvidenceList(unit=unit, data=items)


@router.get("/text")
async def get_text(
    job: FoundJob,
    request: Request,
    start: Annotated[int, Query(ge=0, le=2**40)] = 0,
    end: Annotated[int | None, Query(ge=0, le=2**40)] = None,
    unit: Unit = "codepoint",
) -> TextSlice:
    """The text [start, end) of the job's documents, at most 262,144 characters; without `end`, as much as that."""
    texts, refs = _texts(request), job.request.documents
    placed = place_documents(refs)
    total = placed[-1].start + placed[-1].characters if placed else 0
    utf16 = unit == "utf16"
    first = min(total, await texts.from_utf16(refs, start) if utf16 else start)
    last = first + _LONGEST_TEXT_CHARS
    if end is not None:
        last = await texts.from_utf16(refs, end) if utf16 else end
    last = max(first, min(last, total))
    if last - first > _LONGEST_TEXT_CHARS:
        raise ApiError(422, f"At most {_LONGEST_TEXT_CHARS:,} characters at a time.", "too_much_text", "end")
    text = await texts.read(refs, first, last)
    if utf16:
        first, last, total = [await texts.to_utf16(refs, offset) for offset in (first, last, total)]
    return TextSlice(unit=unit, start=first, end=last, text=text, total=total, documents=placed)


async def _evidence_item(
    texts: JobText, job: Job, found: dict[str, Any], unit: Unit, *, side: str, answer: str
) -> EvidenceItem:
    start, end, refs = found.get("start"), found.get("end"), job.request.documents
    holder = None
    if start is not None:
        holder = next((d for d in reversed(place_documents(refs)) if d.start <= start), None)
    if unit == "utf16" and start is not None and end is not None:
        start, end = await texts.to_utf16(refs, start), await texts.to_utf16(refs, end)
    return EvidenceItem(
        n=0,
        side=side,
        answer=answer,
        file_id=holder.file_id if holder else None,
        doc_version=f"sha256:{holder.sha256}" if holder else None,
        source=found.get("source"),
        line=found.get("line"),
        start=start,
        end=end,
        unit=unit,
        chunk=found.get("chunk"),
        quote=found.get("quote", ""),
        match=found.get("alignment", ""),
        similarity=found.get("similarity"),
    )


def _texts(request: Request) -> JobText:
    texts: JobText = request.app.state.texts
    return texts
