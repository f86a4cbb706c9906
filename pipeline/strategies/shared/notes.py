"""Notes that a chain of calls hands on: kept within a proven number of tokens, and turned into an answer at the end.

A note's words belong to the model; the sentences it rests on are pointers beside it, so an answer made from notes
still has evidence that stands in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.findings.answer import NOTHING, Conclusion, conclude_from_one
from pipeline.findings.evidence import MAX_EVIDENCE, contains_answer
from pipeline.findings.finding import ChunkIndex, Evidence, Finding
from pipeline.llm.complete import complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.llm.prompt import PromptTemplate, chat_prompt
from pipeline.llm.schema import (
    CONFIDENCE,
    TEXT,
    WORDS_PER_TOKEN,
    Schema,
    answer_schema,
    number_list,
    object_schema,
    parse_fields,
)
from pipeline.llm.tokenizer import Tokenizer
from pipeline.mapreduce.collapse import MAX_NAMED
from pipeline.run.run import Run

REPAIRS = 2
_JSON_TOKENS = 64
"""Field names, brackets and escapes around a condensed text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is known so far, and for each part that added to it the sentences it named."""

    text: str = ""
    evidence: Mapping[ChunkIndex, tuple[Evidence, ...]] = field(default_factory=dict)
    """By chunk."""

    def rewritten(self, text: str, index: int, evidence: tuple[Evidence, ...]) -> Notes:
        return Notes(text=text, evidence={**self.evidence, index: evidence})


@dataclass(slots=True, kw_only=True)
class NotesBudget:
    """A run that works with notes of at most `max_tokens`, as they stand in a prompt."""

    run: Run
    max_tokens: int

    def encode(self, text: str) -> Sequence[int]:
        return self.run.tokenizer.encode_content(text)[: self.max_tokens]

    def answer_call(self, notes: Notes, template: PromptTemplate) -> Call:
        """Ask for the answer from the notes alone; they are cut to what was budgeted for them."""
        run = self.run
        values = {"notes": self.encode(notes.text), "question": run.question_ids}
        fields: dict[str, Schema] = {
            "parts": number_list(max(notes.evidence, default=0) + 1, MAX_NAMED),
            "explanation": TEXT,
            "answer": answer_schema(run.request.letters),
            "confidence": CONFIDENCE,
        }
        if run.task.free_text:
            del fields["explanation"]
        sampling = Sampling(max_output_tokens=run.task.reduce_output_tokens, json_schema=object_schema(**fields))
        prompt = chat_prompt(run.tokenizer, own=[template.encode(run.tokenizer, values)])
        return run.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))

    def check_answer_fits(self, template: PromptTemplate) -> None:
        """Raises ContextTooSmall where the last call would have no room for full notes."""
        empty = self.answer_call(Notes(), template)
        self.run.resources.budget.room_tokens(
            fixed_tokens=len(empty.prompt.token_ids),
            output_tokens=empty.sampling.max_output_tokens,
            min_tokens=self.max_tokens,
        )

    async def answer(self, notes: Notes, template: PromptTemplate) -> Conclusion:
        """Conclude from the notes; if that fails they are shown as they are, and a warning says so."""

        def read(completion: Completion) -> Finding:
            parsed = parse_fields(completion)
            indices = tuple(sorted({number - 1 for number in parsed.numbers("parts")} & notes.evidence.keys()))
            finding = Finding(
                chunk_indices=indices or tuple(sorted(notes.evidence)),
                evidence=_evidence(notes, indices, parsed.text("answer")),
                rationale=parsed.text("explanation"),
                answer=parsed.text("answer"),
                stated_confidence=parsed.confidence(),
                truncated=parsed.truncated,
            )
            return self.run.judge(finding)

        result = await complete_parsed(self.answer_call(notes, template), read, self.run.meter, repairs=REPAIRS)
        if isinstance(result, CallFailed):
            warning = f"The last step failed; the notes taken so far are all there is: {result.message}"
            text = notes.text if self.run.task.free_text else ""
            evidence = _evidence(notes, (), "")
            return Conclusion(text=text, explanation=notes.text, probability=0.0, evidence=evidence, warning=warning)
        return conclude_from_one(result) if result.answer else replace(NOTHING, explanation=result.rationale)


def _evidence(notes: Notes, named: Sequence[int], answer: str) -> tuple[Evidence, ...]:
    """Of the named parts, else of all; sentences that hold the answer before others, then in document order."""
    found = [e for index in named for e in notes.evidence[index]] or [
        e for all_ in notes.evidence.values() for e in all_
    ]
    placed = {e.span: e for e in found if e.span is not None}
    best = sorted(placed, key=lambda span: (not contains_answer(placed[span], answer), span))[:MAX_EVIDENCE]
    return tuple(placed[span] for span in sorted(best))


async def condense_notes(text: str, max_tokens: int, run: Run) -> str:
    """Return `text` if it has at most `max_tokens`, else ask once for a shorter one; what is still longer is cut."""
    tokenizer = run.tokenizer
    ids = tokenizer.encode_content(text)
    if len(ids) <= max_tokens:
        return text
    values = {
        "notes": ids[: condense_room_tokens(max_tokens, run)],
        "words": tokenizer.encode_template(str(int(max_tokens * WORDS_PER_TOKEN))),
    }
    call = _condense_call(values, max_tokens, run)
    shorter = await complete_parsed(
        call, lambda completion: parse_fields(completion).text("notes"), run.meter, repairs=0
    )
    return cut_text(text if isinstance(shorter, CallFailed) or not shorter else shorter, max_tokens, tokenizer)


def condense_room_tokens(max_tokens: int, run: Run) -> int:
    """Tokens of notes that one condensing call can read."""
    empty = _condense_call({"notes": (), "words": run.tokenizer.encode_template("99999")}, max_tokens, run)
    return run.resources.budget.room_tokens(
        fixed_tokens=len(empty.prompt.token_ids), output_tokens=empty.sampling.max_output_tokens
    )


def _condense_call(values: dict[str, Sequence[int]], max_tokens: int, run: Run) -> Call:
    template, every = run.prompt("notes", "condense"), values | {"question": run.question_ids}
    sampling = Sampling(max_output_tokens=max_tokens + _JSON_TOKENS, json_schema=object_schema(notes=TEXT))
    prompt = chat_prompt(run.tokenizer, own=[template.encode(run.tokenizer, every)])
    return run.resources.budget.check_fits(Call(prompt=prompt, sampling=sampling, stage=Stage.COLLAPSE))


def cut_text(text: str, max_tokens: int, tokenizer: Tokenizer) -> str:
    """The beginning of `text` that has at most `max_tokens`; a character cut in two is left out."""
    ids = tokenizer.encode_content(text)
    return text if len(ids) <= max_tokens else tokenizer.decode(ids[:max_tokens]).rstrip("\ufffd").rstrip()
