"""What every strategy promises of its journal, whatever its script: nothing is paid twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.documents.document import Document
from pipeline.findings.answer import Answer
from pipeline.front_door import ask
from pipeline.llm.model import Call
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from pipeline.run.request import Request
from tests.factories import make_resources


class JournaledRuns:
    """Runs of one request that share a journal in `folder`; one call at a time, so that a kill falls between two."""

    def __init__(self, folder: Path, document: Document, request: Request) -> None:
        self._folder, self._document, self._request = folder, document, request

    async def second_run_makes_no_call(self, script: Script) -> ScriptedModel:
        """Returns the first run's model, which has the calls."""
        first, second = ScriptedModel(script), ScriptedModel(script)
        one, two = await self._run("same", first), await self._run("same", second)
        assert second.calls == []
        assert _untimed(two) == _untimed(one)
        return first

    async def killed_run_makes_only_the_rest(self, script: Script, killed_after: int) -> Answer:
        """Returns the resumed run's answer."""
        whole = ScriptedModel(script)
        await self._run("whole", whole)
        reached = asyncio.Event()

        def stalling(call: Call, times: int) -> Reply:
            if len(killed.calls) > killed_after:
                reached.set()
                return Reply(stalls=True)
            return script(call, times)

        killed, rest = ScriptedModel(stalling), ScriptedModel(script)
        task = asyncio.create_task(self._run("killed", killed))
        await asyncio.wait_for(reached.wait(), timeout=5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer = await self._run("killed", rest)
        assert len(rest.calls) == len(whole.calls) - killed_after
        return answer

    async def _run(self, journal: str, model: ScriptedModel) -> Answer:
        inner = InlineDispatcher(model, max_calls=1)
        dispatcher = JournaledDispatcher(inner, Journal(self._folder / journal), "model")
        return await ask(self._document, self._request, make_resources(dispatcher=dispatcher))


def _untimed(answer: Answer) -> Answer:
    return replace(answer, usage={}, seconds={}, total_seconds=0)
