"""Options of the commands that ask a question, and the request that they make."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.run.request import Limits, Request

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="Text, Markdown, HTML, JSON, PDF, Word, Excel, PowerPoint; a directory; - for standard input.",
    ),
]
Task = Annotated[str, typer.Option(help="Kind of work.")]
Choice = Annotated[list[str] | None, typer.Option(help="An option of a multiple-choice question; repeat.")]
ChunkTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of a chunk.")]
Gather = Annotated[
    int, typer.Option(min=0, help="Tokens of neighbouring text shown beside each chunk, with its headings.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, and no display.")]
MaxCalls = Annotated[int | None, typer.Option(min=1, help="Stop reading after so many calls.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Stop reading after so many tokens.")]
MaxSeconds = Annotated[float | None, typer.Option(min=0, help="Stop reading after so many seconds.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Take nothing from the journal of earlier runs.")]


def request_from(
    question: str,
    task: str,
    choices: list[str] | None,
    strategy: str,
    chunk_tokens: int | None,
    gather_tokens: int,
    limits: Limits,
) -> Request:
    """The request under `strategy`; options make the task multiple choice where none is named."""
    return Request(
        question=question.strip(),
        task=task or ("multiple_choice" if choices else "question_answering"),
        choices=tuple(choices or ()),
        strategy=strategy,
        chunk_tokens=chunk_tokens,
        gather_tokens=gather_tokens,
        limits=limits,
    )
