"""Evidence as it goes with an answer: numbered as at /v1/jobs/{id}/evidence, and placed within its own file too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.api.job_objects import JobDocument, place_documents
from serving.api.job_text import JobText
from serving.jobs.document_ref import DocumentRef
from serving.jobs.job import Job


async def cite(job: Job, texts: JobText) -> list[dict[str, Any]]:
    """The quotes behind a completed job's answer, offsets in the unit that was asked for.

    `start` and `end` count through all documents of the job as one text, `file_start` and `file_end` through the file.
    """
    evidence = (job.result or {}).get("evidence") or ()
    refs = job.request.documents
    cited = place(evidence, refs)
    if job.request.presentation.get("unit") != "utf16":
        return cited
    for quote in cited:
        if quote["start"] is not None:
            begin = await texts.to_utf16(refs, quote["start"] - quote["file_start"])
            quote["start"], quote["end"] = [await texts.to_utf16(refs, quote[end]) for end in ("start", "end")]
            quote["file_start"], quote["file_end"] = quote["start"] - begin, quote["end"] - begin
        quote["unit"] = "utf16"
    return cited


def place(evidence: Sequence[Mapping[str, Any]], refs: tuple[DocumentRef, ...]) -> list[dict[str, Any]]:
    """Number the quotes from 1 on; offsets are code points, None for a quote that was not found."""
    placed = place_documents(refs)
    return [_cited(number, quote, placed) for number, quote in enumerate(evidence, start=1)]


def _cited(number: int, quote: Mapping[str, Any], placed: Sequence[JobDocument]) -> dict[str, Any]:
    start, end = quote.get("start"), quote.get("end")
    holder = None
    if start is not None:
        holder = next((document for document in reversed(placed) if document.start <= start), None)
    return {
        "n": number,
        "file_id": holder.file_id if holder else None,
        "document": holder.name if holder else None,
        "doc_version": f"sha256:{holder.sha256}" if holder else None,
        "source": quote.get("source"),
        "line": quote.get("line"),
        "start": start,
        "end": end,
        "file_start": start - holder.start if holder and start is not None else None,
        "file_end": end - holder.start if holder and end is not None else None,
        "unit": "codepoint",
        "chunk": quote.get("chunk"),
        "quote": quote.get("quote", ""),
        "match": quote.get("alignment", ""),
        "similarity": quote.get("similarity"),
    }
