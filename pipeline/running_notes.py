"""Notes that a chain of calls hands on: kept within a proven number of tokens, and turned into an answer at the end.

A note's words belong to the model; the sentences it rests on are pointers beside it, so an answer made from notes
still has evidence that stands in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.collapse_findings import MOST_EVIDENCE, MOST_NAMED
from pipeline.complete_parsed import complete_one
from pipeline.dispatch import Dispatcher
from pipeline.finding import Evidence, Finding
from pipeline.locate_evidence import holds_answer
from pipeline.map_chunks import judge_finding
from pipeline.model import Call, CallFailed, Completion, Sampling, Stage
from pipeline.prompt import PromptTemplate, chat_prompt
from pipeline.reduce_findings import Conclusion, conclude_from_one
from pipeline.run import Request, Resources
from pipeline.structured_output import CONFIDENCE, TEXT, Schema, number_list, object_schema, one_of, parse_fields
from pipeline.tasks import Task, load_prompt
from pipeline.tokenizer import Tokenizer

WORDS_PER_TOKEN = 0.6
"""What a model is asked to keep to, so that most vocabularies stay under the tokens meant."""
REPAIRS = 2
_JSON_TOKENS = 64
"""Field names, brackets and escapes around a condensed text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is known so far, and for each part that added to it the sentences it named."""

    text: str = ""
    evidence: Mapping[int, tuple[Evidence, ...]] = field(default_factory=dict)
    """By chunk index."""

    def rewritten(self, text: str, index: int, evidence: tuple[Evidence, ...]) -> Notes:
        return Notes(text=text, evidence={**self.evidence, index: evidence})


@dataclass(slots=True, kw_only=True)
class NoteKeeper:
    """What working with notes needs of a run."""

    question_ids: Sequence[int]
    task: Task
    request: Request
    most_tokens: int
    """Of a note, as it stands in a prompt."""
    dispatcher: Dispatcher
    resources: Resources

    @property
    def output_tokens(self) -> int:
        """Of a final answer."""
        return self.task.reduce_output_tokens

    def encode(self, text: str) -> Sequence[int]:
        return self.resources.tokenizer.encode_content(text)[: self.most_tokens]

    def answer_call(self, notes: Notes, template: PromptTemplate) -> Call:
        """Ask for the answer from the notes alone; they are cut to what was budgeted for them."""
        tokenizer = self.resources.tokenizer
        values = {"notes": self.encode(notes.text), "question": self.question_ids}
        answer: Schema = one_of([*self.request.letters, ""]) if self.request.choices else TEXT
        fields: dict[str, Schema] = {
            "parts": number_list(max(notes.evidence, default=0) + 1, MOST_NAMED),
            "explanation": TEXT,
        }
        fields |= {"answer": answer, "confidence": CONFIDENCE}
        if self.task.free_text:
            del fields["explanation"]
        sampling = Sampling(max_output_tokens=self.output_tokens, json_schema=object_schema(**fields))
        prompt = chat_prompt(tokenizer, own=[template.encode(tokenizer, values)])
        return self.resources.budget.prove(Call(prompt=prompt, sampling=sampling, stage=Stage.REDUCE))

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
            return judge_finding(finding, None, self.resources.calibration)

        result = await complete_one(self.answer_call(notes, template), read, self.dispatcher, repairs=REPAIRS)
        if isinstance(result, CallFailed):
            warning = f"The last step failed; the notes taken so far are all there is: {result.message}"
            text = notes.text if self.task.free_text else ""
            evidence = _evidence(notes, (), "")
            return Conclusion(text=text, explanation=notes.text, probability=0.0, evidence=evidence, warning=warning)
        return Conclusion(
            text=result.answer,
            explanation=result.rationale,
            probability=result.probability if result.answer else 0.0,
            evidence=result.evidence if result.answer else (),
        )


def conclude_from_best(conclusion: Conclusion, others: Sequence[Conclusion]) -> Conclusion:
    """One of several conclusions, with those that say something else as its conflicts."""
    return conclude_from_one(_as_finding(conclusion), [_as_finding(other) for other in others], conclusion.warning)


def _as_finding(conclusion: Conclusion) -> Finding:
    return Finding(
        chunk_indices=tuple(sorted({evidence.chunk_index for evidence in conclusion.evidence})),
        evidence=conclusion.evidence,
        rationale=conclusion.explanation,
        answer=conclusion.text,
        stated_confidence=conclusion.confidence,
        probability=conclusion.probability,
    )


def _evidence(notes: Notes, named: Sequence[int], answer: str) -> tuple[Evidence, ...]:
    """Of the named parts, else of all; sentences that hold the answer before others, then in document order."""
    found = [e for index in named for e in notes.evidence[index]] or [
        e for all_ in notes.evidence.values() for e in all_
    ]
    placed = {e.span: e for e in found if e.span is not None}
    best = sorted(placed, key=lambda span: (not holds_answer(placed[span], answer), span))[:MOST_EVIDENCE]
    return tuple(placed[span] for span in sorted(best))


async def condense_notes(
    text: str, most_tokens: int, question_ids: Sequence[int], dispatcher: Dispatcher, resources: Resources
) -> str:
    """Return `text` if it has at most `most_tokens`, else ask once for a shorter one; what is still longer is cut."""
    tokenizer = resources.tokenizer
    ids = tokenizer.encode_content(text)
    if len(ids) <= most_tokens:
        return text
    values = {
        "notes": ids[: condense_room_tokens(most_tokens, question_ids, resources)],
        "question": question_ids,
        "words": tokenizer.encode_template(str(int(most_tokens * WORDS_PER_TOKEN))),
    }
    call = _condense_call(values, most_tokens, resources)
    shorter = await complete_one(call, lambda completion: parse_fields(completion).text("notes"), dispatcher, repairs=0)
    return cut_text(text if isinstance(shorter, CallFailed) or not shorter else shorter, most_tokens, tokenizer)


def condense_room_tokens(most_tokens: int, question_ids: Sequence[int], resources: Resources) -> int:
    """Tokens of notes that one condensing call can read."""
    words = resources.tokenizer.encode_template("99999")
    empty = _condense_call({"notes": (), "question": question_ids, "words": words}, most_tokens, resources)
    return resources.budget.room_tokens(
        fixed_tokens=len(empty.prompt.token_ids), output_tokens=empty.sampling.max_output_tokens
    )


def _condense_call(values: Mapping[str, Sequence[int]], most_tokens: int, resources: Resources) -> Call:
    tokenizer = resources.tokenizer
    sampling = Sampling(max_output_tokens=most_tokens + _JSON_TOKENS, json_schema=object_schema(notes=TEXT))
    prompt = chat_prompt(tokenizer, own=[load_prompt("notes", "condense").encode(tokenizer, values)])
    return resources.budget.prove(Call(prompt=prompt, sampling=sampling, stage=Stage.COLLAPSE))


def cut_text(text: str, most_tokens: int, tokenizer: Tokenizer) -> str:
    """The beginning of `text` that has at most `most_tokens`; a character cut in two is left out."""
    ids = tokenizer.encode_content(text)
    return text if len(ids) <= most_tokens else tokenizer.decode(ids[:most_tokens]).rstrip("\ufffd").rstrip()
