"""Jobs on long documents that keep a service busy while something else is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import httpx2

from benchmarks.systems.gateway_client import check
from pipeline.errors import InternalError

POLL_S = 0.5
_ENDED = ("completed", "failed", "cancelled")


class LongJobs:
    """Submits a job again when it has ended, on a text that no cache knows."""

    def __init__(self, client: httpx2.AsyncClient, text: str) -> None:
        self._client = client
        self._text = text
        self._numbers = count(1)
        self._states: dict[int, str] = {}
        """Of the job in each place, as last seen."""
        self._job_ids: dict[int, str] = {}
        self.completed = 0

    @property
    def running(self) -> int:
        return sum(state == "running" for state in self._states.values())

    @asynccontextmanager
    async def keep(self, places: int) -> AsyncIterator[None]:
        """Hold so many jobs while the block lasts; all have begun when it does, and all have ended after it.

        Raises InternalError within an ExceptionGroup if one fails.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep_one(place)) for place in range(places)]
            try:
                while len(self._states) < places:  # noqa: ASYNC110  # they are reached over HTTP only
                    await asyncio.sleep(POLL_S / 5)
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks) if tasks else None
                await asyncio.gather(*(self._end(job_id) for job_id in self._job_ids.values()))
                self._states.clear()
                self._job_ids.clear()

    async def _keep_one(self, place: int) -> None:
        while True:
            job_id = self._job_ids[place] = await self._submit()
            while (state := await self._state(job_id)) not in _ENDED:
                if state != "queued":
                    self._states[place] = state
                await asyncio.sleep(POLL_S)
            self._states[place] = state
            if state != "completed":
                raise InternalError(f"The long job {job_id} ended as {state}.")
            self.completed += 1

    async def _submit(self) -> str:
        number = next(self._numbers)
        question = f"Which sum was agreed upon in section {number}?"
        body = {"question": question, "text": number_paragraphs(self._text, number), "strategy": "mapreduce"}
        return str(check(await self._client.post("/v1/jobs", json=body))["id"])

    async def _state(self, job_id: str) -> str:
        return str(check(await self._client.get(f"/v1/jobs/{job_id}"))["state"])

    async def _end(self, job_id: str) -> None:
        await self._client.post(f"/v1/jobs/{job_id}/cancel")
        while await self._state(job_id) not in _ENDED:  # noqa: ASYNC110  # as above
            await asyncio.sleep(POLL_S / 5)


def number_paragraphs(text: str, number: int) -> str:
    """The same text with a mark before each paragraph, so that no chunk of it is in the engine's prefix cache."""
    return "\n\n".join(f"{number}.{place} {part}" for place, part in enumerate(text.split("\n\n"), start=1))
