"""An answer, its document or an error as JSON types, for the command line, the API and the job store alike."""

from __future__ import annotations

from typing import Any

from pipeline.documents.document import Document, Span
from pipeline.errors import LongfoldError
from pipeline.findings.answer import Answer
from pipeline.findings.finding import Evidence


def answer_record(answer: Answer, document: Document) -> dict[str, Any]:
    """The answer as JSON types, with every quote's place; offsets are code points."""
    coverage = answer.coverage
    return {
        "answer": answer.text,
        "found": answer.found,
        "explanation": answer.explanation,
        "confidence": answer.confidence,
        "probability": round(answer.probability, 4),
        "evidence": [_evidence_record(evidence, document) for evidence in answer.evidence],
        "conflicts": [
            {
                "answer": finding.answer,
                "probability": round(finding.probability, 4),
                "evidence": [_evidence_record(evidence, document) for evidence in finding.evidence],
            }
            for finding in answer.conflicts
        ],
        "made_from": [_span_record(span) for span in answer.made_from],
        "coverage": {
            "chunks": coverage.chunks,
            "chunks_read": coverage.chunks_read,
            "chunks_extracted": coverage.chunks_extracted,
            "findings_dropped": coverage.findings_dropped,
            "tokens_left_out": coverage.tokens_left_out,
            "share": round(coverage.share, 4),
            "failed_chunks": [
                {"index": chunk.index, **_span_record(chunk.span), "stage": chunk.stage.value}
                | {"error": chunk.error, "message": chunk.message}
                for chunk in coverage.failed_chunks
            ],
        },
        "usage": {
            stage.value: {
                "calls": used.calls,
                "journal_calls": used.journal_calls,
                "prompt_tokens": used.prompt_tokens,
                "cached_tokens": used.cached_tokens,
                "output_tokens": used.output_tokens,
                "seconds": round(answer.seconds.get(stage, 0.0), 3),
            }
            for stage, used in answer.usage.items()
        },
        "total_seconds": round(answer.total_seconds, 3),
        "stopped_by": answer.stopped_by,
        "warnings": list(answer.warnings),
    }


def error_record(error: LongfoldError) -> dict[str, Any]:
    """What `--json` prints in place of an answer."""
    return {"error": {"type": type(error).__name__, "message": str(error), "retryable": error.retryable}}


def document_record(document: Document) -> dict[str, Any]:
    """The document and its sources, by name, place and encoding; not its text."""
    sources = [{"name": s.name, **_span_record(s.span), "encoding": s.encoding} for s in document.sources]
    return {"sha256": document.sha256, "chars": len(document.text), "sources": sources}


def _evidence_record(evidence: Evidence, document: Document) -> dict[str, Any]:
    record: dict[str, Any] = {"quote": evidence.quote, "chunk": evidence.chunk_index}
    record |= {"alignment": evidence.alignment.value, "similarity": round(evidence.similarity, 4)}
    if evidence.span is None:
        return record | {"source": None, "line": None, "start": None, "end": None}
    source, line = document.place(evidence.span.start)
    return record | {"source": source, "line": line} | _span_record(evidence.span)


def _span_record(span: Span) -> dict[str, int]:
    return {"start": span.start, "end": span.end}
