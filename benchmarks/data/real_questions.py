# ruff: noqa: E501
# fmt: off
"""Questions about Python's language reference, each checked by hand against the sentence that states its answer.

A sentence that the running Python's own reference does not have (the wording changes between versions) drops out with
its question. Where the same sentence stands under several topics, every place counts as stating the answer.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from benchmarks.data.haystack import Piece, language_reference
from benchmarks.data.patterns import REGEX


@dataclass(frozen=True, slots=True)
class RealQuestion:
    question: str
    sentences: tuple[str, ...]
    """Any of them states the answer; white space and line ends may differ in the text."""
    accepted: tuple[str, ...]
    rejected: tuple[str, ...] = ()

    def patterns(self) -> list[str]:
        """Regular expressions for the sentences as they are broken into lines."""
        return [r"\s+".join(map(re.escape, sentence.split())) for sentence in self.sentences]

    def finds(self, text: str) -> bool:
        return any(re.search(pattern, text) for pattern in self.patterns())


def _version(minor: int, question: str, *sentences: str) -> RealQuestion:
    """The answer is Python 3.`minor`; an answer that names another version as well is wrong."""
    other = rf"{REGEX}(?<![0-9.])[23]\.(?!{minor}(?![0-9]))[0-9]+"
    return RealQuestion(question, sentences, (f"3.{minor}",), (other,))


def _pep(number: int, question: str, *sentences: str) -> RealQuestion:
    other = rf"{REGEX}pep *(?!{number}(?![0-9]))[0-9]+"
    return RealQuestion(question, sentences, (str(number),), (other,))


REAL_QUESTIONS = (
    _version(
        6,
        "In which Python version were underscores first allowed in numeric literals?",
        "Changed in version 3.6: Underscores are now allowed for grouping purposes in literals.",
    ),
    _version(7, "In which Python version did await and async become keywords?", 'Changed in version 3.7: "await" and "async" are now keywords;'),
    _version(
        8,
        "Before which Python version was a continue statement illegal in a finally clause?",
        'Prior to Python 3.8, a "continue" statement was illegal in the "finally" clause',
    ),
    _version(
        10,
        "Since which Python version can a with statement be broken into several lines with grouping parentheses?",
        "Changed in version 3.10: Support for using grouping parentheses to break the statement in multiple lines.",
    ),
    _version(3, "Since which Python version is hash randomization enabled by default?", "Changed in version 3.3: Hash randomization is enabled by default."),
    _version(7, "Since which Python version is the LIFO order of popitem guaranteed?", "Changed in version 3.7: LIFO order is now guaranteed."),
    _version(8, "Since which Python version are dictionaries reversible?", "Changed in version 3.8: Dictionaries are now reversible."),
    _version(
        9,
        "Since which Python version is evaluating NotImplemented in a boolean context deprecated?",
        'Changed in version 3.9: Evaluating "NotImplemented" in a boolean context is deprecated.',
    ),
    _version(
        2,
        "Since which Python version may a name be deleted that occurs as a free variable in a nested block?",
        "Changed in version 3.2: Previously it was illegal to delete a name from the local namespace if it occurs as a free variable in a nested block.",
    ),
    _version(3, 'Since which Python version is None permitted as Y in "raise X from Y"?', 'Changed in version 3.3: "None" is now permitted as "Y" in "raise X from Y".'),
    _pep(
        570,
        "Which PEP describes the / syntax for positional-only function parameters?",
        'The "/" function parameter syntax may be used to indicate positional-only parameters. See **PEP 570** for details.',
    ),
    _pep(682, "Which PEP describes the z option of the format specification?", "Added the \"'z'\" option (see also **PEP 682**)."),
    _pep(378, "Which PEP describes the comma option of the format specification?", "Added the \"','\" option (see also **PEP 378**)."),
    _pep(515, "Which PEP describes the underscore option of the format specification?", "Added the \"'_'\" option (see also **PEP 515**)."),
    _pep(
        414,
        "Which PEP tells more about the return of the legacy literal u'value'?",
        "was reintroduced to simplify the maintenance of dual Python 2.x and 3.x codebases. See **PEP 414** for more information.",
    ),
    _pep(3132, "Which PEP specifies extended iterable unpacking?", "**PEP 3132** - Extended Iterable Unpacking"),
    _pep(3104, "Which PEP specifies access to names in outer scopes?", "**PEP 3104** - Access to Names in Outer Scopes"),
    RealQuestion("What is the prompt of the debugger pdb?", ('The debugger’s prompt is "(Pdb)"',), ("Pdb",)),
    RealQuestion("How many lines does the debugger's list command show without arguments?", ("Without arguments, list 11 lines around the current line",), ("11",)),
    RealQuestion("UnboundLocalError is a subclass of which exception?", ('"UnboundLocalError" is a subclass of "NameError".',), ("NameError",)),
    RealQuestion(
        "Into which Unicode normal form are identifiers converted while parsing?",
        ("All identifiers are converted into the normal form NFKC while parsing",),
        ("NFKC",),
        ("NFC", "NFD", "NFKD"),
    ),
    RealQuestion("What is the default tab size of str.expandtabs?", ("Tab positions occur every *tabsize* characters (default is 8,",), ("8",), ("4",)),
    RealQuestion("With which encoding has the debugger read its .pdbrc file since Python 3.11?", ('".pdbrc" is now read with "\'utf-8\'" encoding.',), ("utf 8", "utf8")),
    RealQuestion(
        "Which exception does raising 0.0 to a negative power result in?",
        ('Raising "0.0" to a negative power results in a "ZeroDivisionError".',),
        ("ZeroDivisionError",),
        ("ValueError",),
    ),
    RealQuestion(
        "What is the real part of the complex number that an imaginary literal yields?",
        ("An imaginary literal yields a complex number with a real part of 0.0.",),
        ("0.0", "0"),
    ),
)


@functools.cache
def answerable() -> dict[RealQuestion, Piece]:
    """The questions that this Python's reference answers, each with a piece of it that does."""
    found: dict[RealQuestion, Piece] = {}
    for question in REAL_QUESTIONS:
        for piece in language_reference():
            if question.finds(piece.text()):
                found[question] = piece
                break
    return found
