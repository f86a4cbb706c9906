"""A second round for an answer that stands in two places: what one part says tells which other part to ask.

"In which town does the guild that led the expedition sit?" No chunk answers it: one says which guild, another where
that guild sits. The first is found by the gate, and its finding dropped, because its sentences do not state the
answer. So when nothing else was found, the best dropped finding becomes a clue: its sentences stand beside the
question, and the chunks whose words are closest to both are read with it. One round; the price is as many calls as a
gate keeps at least, and only where the run would have ended without an answer.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.finding import Evidence, Finding
from pipeline.rank_chunks import best_first, score_words
from pipeline.read_chunks import Reading


async def follow_clue(reading: Reading) -> list[Finding]:
    """Findings that rest on the clue and on a chunk read with it; empty if there is no clue or it leads nowhere."""
    clue = _best_clue(reading)
    if clue is None:
        return []
    run = reading.run
    known = tuple(evidence for evidence in clue.evidence if evidence.span is not None)
    text = " ".join(evidence.quote for evidence in known)
    lexical = score_words(run.document, run.chunks, f"{run.request.question} {text}")
    nearest = [index for index in best_first(lexical) if index not in clue.chunk_indices and lexical[index] > 0]
    return await _with_clue(reading, known, text).read_some(nearest[: run.resources.gate.keep_at_least])


def _best_clue(reading: Reading) -> Finding | None:
    """The dropped finding from the most relevant chunk."""
    located = [finding for finding in reading.dropped if any(evidence.span for evidence in finding.evidence)]

    def relevance(finding: Finding) -> float:
        index = finding.chunk_indices[0]
        return reading.scores.get(index, reading.lexical[index])

    return max(located, key=relevance, default=None)


def _with_clue(reading: Reading, known: tuple[Evidence, ...], text: str) -> Reading:
    """The same reading, asked with the clue; what is read and what failed goes into the one account of both.

    The gate's scores are left out: they say how relevant a chunk is to the question without the clue.
    """
    run = reading.run
    values = {"question": run.question_ids, "known": run.tokenizer.encode_content(text)}
    question_ids = run.task.known.encode(run.tokenizer, values)
    request = replace(run.request, question=f"{run.request.question} {text}")
    return replace(reading, run=replace(run, question_ids=question_ids, request=request), known=known, scores={})
