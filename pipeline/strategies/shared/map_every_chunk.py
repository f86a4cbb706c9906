"""One call per chunk, whatever the chunk says: the map of strategies that have no gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.chunks.split import Chunk
from pipeline.findings.finding import Finding
from pipeline.llm.complete import REPAIRS, complete_parsed
from pipeline.llm.model import Call, CallFailed, Completion
from pipeline.run.run import Run


async def map_every_chunk(
    run: Run,
    make_call: Callable[[Chunk], Call],
    read: Callable[[Chunk, Completion], Finding],
    *,
    order: Sequence[int] | None = None,
    repairs: int = REPAIRS,
) -> dict[int, Finding]:
    """What those chunks say that say something, by index, in document order.

    Sent in `order` (of chunk indices; document order without). `read` raises MalformedOutput. A call that fails leaves
    its chunk unread, and the others are read.
    """
    order = range(len(run.chunks)) if order is None else order
    said: dict[int, Finding] = {}

    def told(place: int, result: Finding | CallFailed) -> None:
        index = order[place]
        if isinstance(result, CallFailed):
            run.account.add_failed(index, result)
            return
        if not result.is_empty:
            said[index] = result
        run.account.add_read(index, said.get(index))

    await complete_parsed(
        [run.resources.budget.prove(make_call(run.chunks[index])) for index in order],
        lambda place, completion: read(run.chunks[order[place]], completion),
        run.meter,
        repairs=repairs,
        told=told,
    )
    return dict(sorted(said.items()))
