"""Which part of a conversation is the document, and which is the question.

The rules, in their order. A text of more than N tokens is long, every other short.

    (a) file parts, and files named beside the messages, are the documents; the last user message is the question, and
        a long text beside them one more document
    (b) else, if the prompt fits the model's window, it is passed through unread
    (c) else the last short user text is the question, and every long text a document
    (d) else a user text is long and alone. Its question is, whichever is there first:
            what its tags and labels mark as the question (`split_prompt`)
            a short system text that reads like something that is asked
            its own last or first paragraph, if that reads so
            any other short system text
    (e) else, with a long text, it is ambiguous, and the caller is told how to write it with parts; without any, the
        conversation is too long for the model's context

Short system and developer texts are instructions and go in front of the question. What is neither document, question
nor instruction (earlier turns, other short parts) is left out and counted. A question that was already answered, that
is, one followed by an assistant message, is never taken for the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from serving.api.openai.split_prompt import is_request, split_marked, split_written

QUESTION_TOKENS = 1000
"""N of rule (c): a page of text. A question is shorter, a document worth splitting longer."""
QUESTION_SHARE = 8
"""In a small context N is one part in this many, because the question stands beside each chunk."""

_CHARS_PER_TOKEN = 4
"""In which a paragraph's length is judged; whether the question fits its place is counted later."""

_HOW = (
    'Give the document as a file part, {"type": "file", "file": {"file_id": ...}}, or in longfold.file_ids, '
    "and the question as a text part of the last user message."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A text or a file of a message; exactly one of `text` and `file` is set."""

    role: str
    message: int
    """Index of the message it belongs to."""
    text: str = ""
    tokens: int = 0
    """Of the text."""
    file: str = ""
    """Names the file to the caller; not looked into here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the served model can take in one call."""

    context_tokens: int
    prompt_tokens: int
    """Of all messages as one prompt, chat template included."""
    output_tokens: int
    """To be kept free for the answer."""

    @property
    def fits(self) -> bool:
        return self.prompt_tokens + self.output_tokens <= self.context_tokens

    @property
    def question_tokens(self) -> int:
        """N: the longest text that is taken for a question."""
        return min(QUESTION_TOKENS, self.context_tokens // QUESTION_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The messages go to the model as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentQuestion:
    """A question about documents."""

    found_by: str
    """Which rule found them: files, length, one text, system text."""
    question: str
    instructions: str = ""
    files: tuple[str, ...] = ()
    """In order of appearance, each once."""
    texts: tuple[str, ...] = ()
    """In order of appearance."""
    left_out: int = 0
    """Text parts that are used for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """No rule says what is meant; `message` says how to write it."""

    message: str
    code: str = "ambiguous_document"


def find_document(
    parts: Sequence[Part], window: Window, *, files: Sequence[str] = (), wants_reading: bool = False
) -> Conversation | DocumentQuestion | Ambiguous:
    """Decide by the rules above. `files` are named beside the messages.

    With `wants_reading` rule (b) is left out and no text is too short for a document: the caller asked for something
    that only a reading of a document obeys.
    """
    texts = [part for part in parts if part.text.strip()]
    named = tuple(dict.fromkeys([*(part.file for part in parts if part.file), *files]))
    if not named and window.fits and not wants_reading:
        return Conversation()

    # What is asked now: the user's texts that no assistant has answered; beside files those of the last message.
    answered = _last_turn(texts, "assistant")
    asked = [part for part in texts if part.role == "user" and part.message > answered]
    if named:
        asked = [part for part in asked if part.message == asked[-1].message]
    short = [part for part in asked if part.tokens <= window.question_tokens]

    # Long texts are documents. Beside files only new ones are, and system texts of any length instructions.
    system = [part for part in texts if part.role in ("system", "developer")]
    if named:
        documents = [part for part in asked if part not in short]
    else:
        documents = [part for part in texts if part.role != "assistant" and part.tokens > window.question_tokens]
        if not documents and wants_reading:
            documents, short = asked[:-1] or asked, asked[1:][-1:]
        if not documents:
            return _without_document(window)
        system = [part for part in system if part not in documents]

    found = _Found(texts=texts, system=system, documents=documents, files=named)
    if short:
        question_parts = short if named else short[-1:]
        return found.ask(_join(part.text for part in question_parts), "length", question_parts)
    is_open = answered < max(0, _last_turn(parts, "user"))
    return _find_within(found, asked[-1] if asked else None, window, is_open=is_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is known before the question is."""

    texts: Sequence[Part]
    system: Sequence[Part]
    documents: Sequence[Part]
    files: tuple[str, ...]

    def ask(self, question: str, found_by: str, question_parts: Sequence[Part] = ()) -> DocumentQuestion:
        """`question_parts` are the texts that are the question, as far as it is not within a document."""
        instructions = [part for part in self.system if part not in question_parts]
        used = {id(part) for part in [*question_parts, *instructions, *self.documents]}
        return DocumentQuestion(
            found_by="files" if self.files else found_by,
            question=question,
            instructions=_join(part.text for part in instructions),
            files=self.files,
            texts=tuple(part.text for part in self.documents),
            left_out=len(self.texts) - len(used),
        )


def _find_within(found: _Found, last: Part | None, window: Window, *, is_open: bool) -> DocumentQuestion | Ambiguous:
    """Rules (d) and (e). `last` is the user's last text, a long one; `is_open`: something is asked by it or a file."""
    max_chars = _CHARS_PER_TOKEN * window.question_tokens
    requests = [part for part in found.system if part.tokens <= window.question_tokens] if is_open else []
    split = split_marked(last.text, max_chars) if last else None
    if split is None and (request := next((part for part in reversed(requests) if is_request(part.text)), None)):
        return found.ask(request.text.strip(), "system text", [request])
    if split is None and last:
        split = split_written(last.text, max_chars)
    if split is not None:
        asked = found.ask(split.question, "one text")
        return replace(
            asked,
            instructions=_join([asked.instructions, split.instructions]),
            texts=tuple(split.document if part is last else part.text for part in found.documents),
        )
    if requests:
        return found.ask(requests[-1].text.strip(), "system text", requests[-1:])
    if found.files:
        return Ambiguous(message=f"The files come without a question. {_HOW}")
    return Ambiguous(
        message=f"{_size(window)}; no text of at most {window.question_tokens} tokens, no label and no first or last "
        f"paragraph says what the question is. {_HOW}"
    )


def _without_document(window: Window) -> Ambiguous:
    if window.fits:
        return Ambiguous(message=f"A document is to be read, and there is none. {_HOW}")
    return Ambiguous(
        message=f"{_size(window)}; no text of over {window.question_tokens} tokens could be a document. Shorten the "
        f"conversation. {_HOW}",
        code="context_length_exceeded",
    )


def _size(window: Window) -> str:
    return f"The prompt has {window.prompt_tokens} tokens and the model's context {window.context_tokens}"


def _last_turn(parts: Iterable[Part], role: str) -> int:
    """Index of the last message of this role, -1 if there is none."""
    return max((part.message for part in parts if part.role == role), default=-1)


def _join(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())
