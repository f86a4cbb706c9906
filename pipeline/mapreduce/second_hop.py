"""A second round for an answer that stands in two places: what one part says tells which other part to ask.

"In which town does the guild that led the Corvvik expedition sit?" No chunk answers it: one says which guild led the
expedition, another where that guild sits. So when nothing else was found, the sentence whose words are closest to the
question becomes a clue. It stands beside the question, and the chunks with the sentences closest to both are read with
it. No call is needed to find the clue: the rare name that the question begins from is what BM25 looks for, while the
model, made to name a sentence, names one that merely looks like an answer (docs/experiments.md). One round, with as
many calls as a gate keeps at least, and only where the run would have ended without an answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pipeline.chunks.rank import best_first, score_words
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.mapreduce.read import Reading, ask_more


async def follow_clue(reading: Reading) -> list[Finding]:
    """Findings that rest on the clue and on a chunk read with it; empty if there is no clue or it leads nowhere."""
    # Every word of the document is looked at, which takes seconds for a long one; calls and heartbeats go on meanwhile.
    clue = await asyncio.to_thread(_find_clue, reading)
    if clue is None:
        return []
    nearest = await asyncio.to_thread(_nearest_chunks, reading, clue)
    return await _with_clue(reading, clue).read_some(nearest[: reading.run.resources.gate.keep_at_least])


def _find_clue(reading: Reading) -> Evidence | None:
    """The sentence closest to the question; none if no sentence shares a word with it."""
    sentences = [(chunk.index, sentence) for chunk in reading.run.chunks for sentence in chunk.sentences]
    scores = score_words(reading.run.document, [sentence for _, sentence in sentences], reading.run.request.question)
    place = best_first(scores)[0]
    if scores[place] <= 0:
        return None
    chunk_index, sentence = sentences[place]
    return Evidence(
        quote=reading.run.document.slice(sentence.span),
        chunk_index=chunk_index,
        span=sentence.span,
        alignment=Alignment.CLUE,
    )


def _nearest_chunks(reading: Reading, clue: Evidence) -> list[int]:
    """Chunks by their sentence closest to question and clue. The clue's own was read with the clue in it."""
    others = [chunk for chunk in reading.run.chunks if chunk.index != clue.chunk_index]
    sentences = [(chunk.index, sentence) for chunk in others for sentence in chunk.sentences]
    both = f"{reading.run.request.question} {clue.quote}"
    scores = score_words(reading.run.document, [sentence for _, sentence in sentences], both)
    ranked = (sentences[place][0] for place in best_first(scores) if scores[place] > 0)
    return list(dict.fromkeys(ranked))


def _with_clue(reading: Reading, clue: Evidence) -> Reading:
    """The same reading, asked with the clue.

    The gate's scores are left out: they say how relevant a chunk is to the question without the clue.
    """
    run = ask_more(reading.run, reading.run.task.known, clue.quote.strip())
    return replace(reading, run=run, known=(clue,), scores={})
