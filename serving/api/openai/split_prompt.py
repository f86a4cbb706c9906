"""One text that holds a question and what it is about, as chat clients and RAG templates write it, taken apart.

Two kinds of sign, of which the first is trusted more:

    marked    the document stands in tags (`<context>...</context>`), or a line says `Question:` at the end of the text,
              or before one that says `Context:` at its beginning
    written   the last or the first paragraph reads like something that is asked

Nothing is guessed beyond that: a text without such a sign has no question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPrompt:
    """The parts of a text."""

    question: str
    document: str
    instructions: str = ""
    """What else a template says."""


_DOCUMENT_TAGS = ("context", "documents", "document", "chat_history", "search_results", "article", "transcript", "text")
_QUESTION_TAG = re.compile(r"<(user_query|query|question)>(.*?)</\1>", re.DOTALL)
_QUESTION_LINE = re.compile(
    r"^[#*> ]*(?:(?:the )?user(?:'s)? |my )?(?:question|query|request|frage|问题)[* ]*[:：][* ]*",
    re.IGNORECASE | re.MULTILINE,
)
_CONTEXT_LINE = re.compile(
    r"^[#*> ]*(?:the |retrieved |provided |following )*"
    r"(?:context|documents?|passages?|texts?|articles?|sources?|content)[* ]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_LINE = re.compile(r"[#*> ]*(?:[a-z]+ )?(?:answer|response|antwort|回答)[* ]*[:：][* ]*", re.IGNORECASE)
_MAX_LABEL_CHARS = 80
_ASKING = re.compile(
    r"(?:what|who|whom|whose|which|when|where|why|how|is|are|was|were|does|do|did|can|could|should|would|has|have)\b",
    re.IGNORECASE,
)
_TELLING = re.compile(
    r"(?:summari[sz]e|explain|describe|list|name|find|extract|compare|tell|give|write|show|count|identify|analy[sz]e|"
    r"translate|classify|outline|discuss|evaluate|suggest|generate|create|provide|determine|calculate|compute|highlight|"
    r"rewrite|draft|check|tl;?dr)\b|请|总结|概括|列出|解释|说明|找出|翻译",
    re.IGNORECASE,
)
_PLEASE = re.compile(r"(?:please|kindly|now|then|can you|could you|bitte)[, ]+", re.IGNORECASE)
_POINTS_ON = re.compile(r"[:：]\Z|\b(?:following|below)\b", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


def split_marked(text: str, max_question_chars: int) -> SplitPrompt | None:
    """By tags and labels; None if there are none around a question of at most so many characters."""
    return _split_tagged(text, max_question_chars) or _split_labelled(text, max_question_chars)


def split_written(text: str, max_question_chars: int) -> SplitPrompt | None:
    """By what the last and the first paragraph say; the last line counts as a paragraph too."""
    text = text.strip()
    first = _BLANK_LINE.split(text[: max_question_chars + 2], maxsplit=1)[0]
    tail = text[-max_question_chars - 2 :]
    lasts = [_BLANK_LINE.split(tail)[-1], tail.rpartition("\n")[2]]
    tries = [(last, text[: len(text) - len(last)]) for last in lasts]
    tries.insert(0 if _POINTS_ON.search(first) else len(tries), (first, text[len(first) :]))
    for question, document in tries:
        if len(question) <= max_question_chars and document.strip() and is_request(question):
            return SplitPrompt(question=question.strip(), document=document.strip())
    return None


def is_request(text: str) -> bool:
    """Whether a short text reads like something that is asked of its reader."""
    text = text.strip()
    if text.endswith(("?", "？")):
        return True
    start = _PLEASE.sub("", text, count=1)
    return bool(_TELLING.match(start) or (_ASKING.match(start) and not text.endswith((".", "!"))))


def _split_tagged(text: str, max_question_chars: int) -> SplitPrompt | None:
    """The document is what stands between the first and the last tag of a name."""
    for name in _DOCUMENT_TAGS:
        first, last = text.find(f"<{name}>"), text.rfind(f"</{name}>")
        if not 0 <= first < last:
            continue
        end = last + len(f"</{name}>")
        before, document, after = (
            text[:first].strip(),
            text[first + len(f"<{name}>") : last].strip(),
            text[end:].strip(),
        )
        if not document or len(before) + len(after) > max_question_chars:
            continue
        if tagged := _QUESTION_TAG.search(f"{before}\n{after}"):
            if not (question := tagged[2].strip()):
                continue
            rest = f"{before}\n{after}".replace(tagged[0], "").strip()
            return SplitPrompt(question=question, document=document, instructions=rest)
        after = _QUESTION_LINE.sub("", _without_answer_line(after)).strip()
        if after:
            return SplitPrompt(question=after, document=document, instructions=before)
        if before:
            return SplitPrompt(question=before, document=document)
    return None


def _split_labelled(text: str, max_question_chars: int) -> SplitPrompt | None:
    text = _without_answer_line(text)
    ending = max(0, len(text) - max_question_chars - _MAX_LABEL_CHARS)
    for label in reversed(list(_QUESTION_LINE.finditer(text, ending))):
        question, document = text[label.end() :].strip(), text[: label.start()].strip()
        several = _BLANK_LINE.search(question) or _CONTEXT_LINE.search(question)
        if question and document and not several and len(question) <= max_question_chars:
            return SplitPrompt(question=question, document=document)
    first = _QUESTION_LINE.search(text, 0, max_question_chars)
    context = _CONTEXT_LINE.search(text, first.end(), first.end() + max_question_chars) if first else None
    if first is None or context is None:
        return None
    question, document = text[first.end() : context.start()].strip(), text[context.end() :].strip()
    if not question or not document:
        return None
    return SplitPrompt(question=question, document=document, instructions=text[: first.start()].strip())


def _without_answer_line(text: str) -> str:
    """Templates end with `Answer:`, which the model was to go on from."""
    text = text.strip()
    before, _, last = text.rpartition("\n")
    return before.strip() if len(last) <= _MAX_LABEL_CHARS and _ANSWER_LINE.fullmatch(last) else text
