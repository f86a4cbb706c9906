"""One call per chunk, whatever the chunk says: the map of strategies that have no gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.chunks.split import Chunk
from pipeline.findings.finding import Finding
from pipeline.llm.complete import REPAIRS, at_once, complete_parsed
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
    said: dict[int, Finding] = {}

    async def read_chunk(chunk: Chunk) -> None:
        call = run.resources.budget.check_fits(make_call(chunk))
        result = await complete_parsed(call, lambda completion: read(chunk, completion), run.meter, repairs=repairs)
        if isinstance(result, CallFailed):
            run.account.add_failed(chunk.index, result)
            return
        if not result.is_empty:
            said[chunk.index] = result
        run.account.add_read(chunk.index, said.get(chunk.index))

    await at_once(read_chunk(run.chunks[index]) for index in order or range(len(run.chunks)))
    return dict(sorted(said.items()))
