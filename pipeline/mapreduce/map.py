"""Map: what one chunk says about the question, with its evidence and the support check on it."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.chunks.call import chunk_call
from pipeline.chunks.split import Chunk
from pipeline.documents.document import Document
from pipeline.findings.evidence import locate_quote, point_to_sentences, relocate_to_answer
from pipeline.findings.finding import Evidence, Finding
from pipeline.llm.model import Call, Completion, Sampling, Stage
from pipeline.llm.prompt import chat_prompt
from pipeline.llm.schema import (
    CONFIDENCE,
    TEXT,
    ParsedFields,
    Schema,
    answer_schema,
    number_list,
    object_schema,
    parse_fields,
    text_list,
)
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.request import Request
from pipeline.tasks import Task

MAX_QUOTES = 3


def map_call(chunk: Chunk, question_ids: Sequence[int], task: Task, request: Request, tokenizer: Tokenizer) -> Call:
    """Ask for one finding. Header and chunk are the same prefix as the gate's."""
    template = task.map_quotes if request.copy_quotes else task.map
    own = template.encode(tokenizer, {"question": question_ids})
    schema = _schema(len(chunk.sentences), task, request)
    sampling = Sampling(max_output_tokens=task.map_output_tokens, json_schema=schema)
    return chunk_call(chunk, own, sampling, tokenizer, header=task.header)


def _schema(sentences: int, task: Task, request: Request) -> str:
    every: dict[str, Schema] = {
        "sentences": number_list(sentences, MAX_QUOTES, min_items=0 if task.may_abstain else 1),
        "quotes": text_list(MAX_QUOTES, min_items=0 if task.may_abstain else 1),
        "rationale": TEXT,
        "answer": answer_schema(request.letters),
        "confidence": CONFIDENCE,
    }
    evidence = "quotes" if request.copy_quotes else "sentences"
    return object_schema(**{name: every[name] for name in (evidence, *task.map_fields)})


def read_finding(
    completion: Completion, chunk: Chunk, document: Document, question: str, gate_score: float | None
) -> Finding:
    """Parse one map output. Raises MalformedOutput. Quotes become places; what is nowhere stays unlocated."""
    parsed = parse_fields(completion)
    return Finding(
        chunk_indices=(chunk.index,),
        evidence=evidence_of(parsed, chunk, document, question),
        rationale=parsed.text("rationale"),
        answer=parsed.text("answer"),
        stated_confidence=parsed.confidence(),
        gate_score=gate_score,
        truncated=parsed.truncated,
    )


def evidence_of(parsed: ParsedFields, chunk: Chunk, document: Document, question: str) -> tuple[Evidence, ...]:
    """What one output about one chunk names, in sentence numbers or in quotes."""
    named = point_to_sentences(document, chunk, parsed.numbers("sentences"))
    named += tuple(locate_quote(document, chunk, quote) for quote in parsed.texts("quotes"))
    return relocate_to_answer(named, document, [chunk], parsed.text("answer"), f"{question} {parsed.text('rationale')}")


def support_call(finding: Finding, question_ids: Sequence[int], task: Task, tokenizer: Tokenizer) -> Call:
    """Ask whether the evidence alone states the answer: one token, on a few sentences."""
    quotes = "\n".join(finding.located_quotes)
    prompt = chat_prompt(
        tokenizer,
        own=[task.support.encode(tokenizer, {"evidence": tokenizer.encode_content(quotes), "question": question_ids})],
    )
    return Call(
        prompt=prompt,
        sampling=Sampling(max_output_tokens=1, choices=(task.yes, task.no)),
        stage=Stage.SUPPORT,
        chunk_index=finding.chunk_indices[0],
    )
