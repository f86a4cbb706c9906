"""Which part of a conversation is the document, and which is the question.

The rules, in their order:

    (a) file parts, and files named beside the messages, are the documents; the last user message is the question
    (b) else, if the prompt fits the model's window, it is passed through unread
    (c) else the last user text part of at most N tokens is the question and every longer text part is a document
    (d) else the request is ambiguous, and the caller is told how to write it with parts

Short system and developer texts are instructions and go in front of the question. What is neither document, question
nor instruction (earlier turns, other short parts) is left out and counted. A question that was already answered, that
is, one followed by an assistant message, is never taken for the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

QUESTION_TOKENS = 1000
"""N of rule (c): a page of text. A question is shorter, a document worth splitting longer."""
QUESTION_SHARE = 8
"""In a small context N is one part in this many, because the question stands beside each chunk."""

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

    question: str
    instructions: str = ""
    files: tuple[str, ...] = ()
    """By rule (a): in order of appearance, each once."""
    texts: tuple[str, ...] = ()
    """By rule (c): in order of appearance."""
    left_out: int = 0
    """Text parts that are used for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """No rule says what is meant; `message` says how to write it."""

    message: str


def find_document(
    parts: Sequence[Part], window: Window, *, files: Sequence[str] = (), wants_reading: bool = False
) -> Conversation | DocumentQuestion | Ambiguous:
    """Decide by the rules above. `files` are named beside the messages.

    With `wants_reading` rule (b) is left out: the caller asked for something that only a reading of a document obeys.
    """
    texts = [part for part in parts if part.text.strip()]
    named = _unique([*(part.file for part in parts if part.file), *files])
    if named:
        return _among_files(texts, named, window)
    if window.fits and not wants_reading:
        return Conversation()
    return _by_length(texts, window)


def _among_files(texts: Sequence[Part], files: tuple[str, ...], window: Window) -> DocumentQuestion | Ambiguous:
    asked = [part for part in texts if part.role == "user"]
    asked = [part for part in asked if part.message == asked[-1].message]
    if not asked or _last_turn(texts, {"assistant"}) > asked[-1].message:
        return Ambiguous(message=f"The files come without a question. {_HOW}")
    instructions = _instructions(texts)
    for part in [*asked, *instructions]:
        if part.tokens > window.question_tokens:
            return Ambiguous(
                message=f"Beside the files, message {part.message} holds a text of {part.tokens} tokens, too long for "
                f"a question (at most {window.question_tokens}) and no file. {_HOW}"
            )
    return DocumentQuestion(
        question=_join(asked),
        instructions=_join(instructions),
        files=files,
        left_out=len(texts) - len(asked) - len(instructions),
    )


def _by_length(texts: Sequence[Part], window: Window) -> DocumentQuestion | Ambiguous:
    longest = window.question_tokens
    answered = _last_turn(texts, {"assistant"})
    short = [p for p in texts if p.role == "user" and p.tokens <= longest and p.message > answered]
    long = [part for part in texts if part.role != "assistant" and part.tokens > longest]
    size = f"The prompt has {window.prompt_tokens} tokens and the model's context {window.context_tokens}"
    if not long:
        return Ambiguous(message=f"{size}; no text part is long enough (over {longest} tokens) for a document. {_HOW}")
    if not short:
        return Ambiguous(
            message=f"{size}; no user text part of at most {longest} tokens follows that could be the question. {_HOW}"
        )
    instructions = [part for part in _instructions(texts) if part.tokens <= longest]
    return DocumentQuestion(
        question=short[-1].text.strip(),
        instructions=_join(instructions),
        texts=tuple(part.text for part in long),
        left_out=len(texts) - 1 - len(long) - len(instructions),
    )


def _instructions(texts: Iterable[Part]) -> list[Part]:
    return [part for part in texts if part.role in ("system", "developer")]


def _last_turn(texts: Iterable[Part], roles: set[str]) -> int:
    """Index of the last message of these roles, -1 if there is none."""
    return max((part.message for part in texts if part.role in roles), default=-1)


def _join(parts: Iterable[Part]) -> str:
    return "\n\n".join(part.text.strip() for part in parts)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
