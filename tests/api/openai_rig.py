"""A gateway over real HTTP and a runner on a scripted model, for OpenAI's clients; fixtures to be imported."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.dispatch.journal import Journal
from pipeline.dispatch.retry import RetryPolicy
from pipeline.llm.model import Call, Stage
from pipeline.llm.scripted import Reply, ScriptedModel
from serving.jobs.runner import JobRunner, Pace
from serving.session import Session
from tests.api.gateway_rig import Rig, running_gateway
from tests.factories import fact_document, make_tokenizer, reading_script

FACT = "The keeper of the lighthouse is called Anselm."
QUESTION = "What is the keeper of the lighthouse called?"
BOOK = fact_document({25: FACT}, paragraphs=40).text
"""Several times the context of the rig's model."""
SHORT = fact_document({1: FACT}, paragraphs=2).text
GREETING = "Hello there."
QUICK = Pace(poll_s=0.01, listen_s=0.05, beat_s=0.2, lease_s=5.0)


@dataclass
class Service:
    """What a team's clients see, and the model behind it."""

    rig: Rig
    model: ScriptedModel = field(init=False)
    slow_s: float = 0.0
    """Added to each call of the model."""
    stalled: bool = False
    """The model does not come back from its calls."""
    finds: bool = True
    """Whether the model finds `FACT`."""
    broken: Exception | None = None
    clients: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.reply)

    @property
    def url(self) -> str:
        return f"{self.rig.url}/v1"

    def sync(self, **options: Any) -> openai.OpenAI:
        """Call it in a thread: the gateway runs on this one."""
        return openai.OpenAI(**({"base_url": self.url, "api_key": "none", "max_retries": 0} | options))

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        made = openai.AsyncOpenAI(**({"base_url": self.url, "api_key": "none", "max_retries": 0} | options))
        self.clients.append(made)
        return made

    async def upload(self, text: str = BOOK, name: str = "harbour.txt", **options: Any) -> str:
        made = await self.client(**options).files.create(file=(name, text.encode()), purpose="user_data")
        return made.id

    async def jobs(self) -> list[dict[str, Any]]:
        """All jobs of whoever needs no key, newest first."""
        listed = (await self.rig.client.get("/v1/jobs")).json()
        return list(listed["data"])

    async def until(self, condition: Callable[[], Any], within_s: float = 15.0) -> None:
        async with asyncio.timeout(within_s):
            while True:
                met = condition()
                if await met if inspect.isawaitable(met) else met:
                    return
                await asyncio.sleep(0.02)

    async def until_state(self, state: str) -> None:
        """Until the newest job is there."""

        async def reached() -> bool:
            jobs = await self.jobs()
            return bool(jobs) and jobs[0]["state"] == state

        await self.until(reached)

    def reply(self, call: Call, times: int) -> Reply:
        if self.stalled:
            return Reply(stalls=True)
        if self.broken is not None:
            return Reply(error=self.broken)  # type: ignore[arg-type]
        if call.stage is Stage.DIRECT:
            return Reply(text='{"greeting": "hello"}' if call.sampling.json_schema else GREETING, delay_s=self.slow_s)
        facts = [(FACT, "Anselm")] if self.finds else []
        reply = reading_script(make_tokenizer(), facts)(call, times)
        return Reply(text=reply.text, choice_logprobs=reply.choice_logprobs, delay_s=self.slow_s)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_gateway(tmp_path) as rig:
        made = Service(rig=rig)
        session = Session(
            model=rig.gateway.model,
            dispatcher=InlineDispatcher(made.model, retry=RetryPolicy(first_wait_s=0.01, longest_wait_s=0.02)),
            journal=Journal(tmp_path / "journal.sqlite"),
            speeds=rig.gateway.speeds,
        )
        runner = asyncio.create_task(JobRunner(rig.store, rig.gateway.files, session, pace=QUICK).run())
        yield made
        for client in made.clients:
            await client.close()
        runner.cancel()
        with suppress(asyncio.CancelledError):
            await runner


def about_file(file_id: str, question: str = QUESTION) -> list[dict[str, Any]]:
    """Messages of a chat that ask about an uploaded file."""
    parts = [{"type": "file", "file": {"file_id": file_id}}, {"type": "text", "text": question}]
    return [{"role": "user", "content": parts}]


def input_about_file(file_id: str, question: str = QUESTION) -> list[dict[str, Any]]:
    """The same as the input of a response."""
    parts = [{"type": "input_file", "file_id": file_id}, {"type": "input_text", "text": question}]
    return [{"role": "user", "content": parts}]
