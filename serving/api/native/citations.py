"""Evidence as it goes with an answer: numbered, and placed within its own file too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serving.api.native.objects import place_documents
from serving.storage.document_ref import DocumentRef


def cite(evidence: Sequence[Mapping[str, Any]], refs: tuple[DocumentRef, ...]) -> list[dict[str, Any]]:
    """Number the quotes from 1 on; offsets count code points and are None for a quote that was not found.

    `start` and `end` count through all documents of the job as one text, `file_start` and `file_end` through the file.
    """
    placed = place_documents(refs)
    cited = []
    for number, quote in enumerate(evidence, start=1):
        start, end = quote.get("start"), quote.get("end")
        holder = None
        if start is not None:
            holder = next((document for document in reversed(placed) if document.start <= start), None)
        cited.append(
            {
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
                "chunk": quote.get("chunk"),
                "quote": quote.get("quote", ""),
                "match": quote.get("alignment", ""),
                "similarity": quote.get("similarity"),
            }
        )
    return cited
