"""One question asked of one served model in several ways, all through the OpenAI endpoint of `longfold serve`.

A peer talks to the model itself, whose name passes its messages through; a strategy of ours is a model name beside a
file. What a question cost is added up by the server from the jobs it led to, alike for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx2
import openai

from benchmarks.data.items import BenchDocument
from benchmarks.data.score import ABSENT
from benchmarks.systems.gateway_client import check
from pipeline.chunks.split import split_document
from pipeline.documents.document import Document
from pipeline.errors import InternalError, SettingInvalid
from pipeline.llm.model import Usage
from pipeline.llm.tokenizer import Tokenizer

OUTPUT_TOKENS = 512
"""Of a peer's call at most; neither peer has a limit of its own, and a small model may go on until the context ends."""
CONCURRENCY = 32
"""Calls of a peer at once: what our dispatcher has in flight for one replica, two tasks of 16."""
CALL_S = 3600.0
LANGGRAPH, TRUNCATED = "langgraph", "truncated"
_TRUNCATED = (
    "Here is a document.\n\n{text}\n\nQuestion: {question}\n"
    f"Answer the question from the document in as few words as possible. If it does not tell, write: {ABSENT}"
)
_CUT = "\n\n[...]\n\n"
_MARGIN_TOKENS = 96
"""The chat template, and what tokens at the cuts may grow by when they are encoded again."""


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Everything that the ways share: the endpoint, the model, the size of a chunk."""

    url: str
    model: str
    tokenizer: Tokenizer
    context_tokens: int
    chunk_tokens: int

    @cached_property
    def client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=CALL_S)

    async def ask(self, way: str, document: BenchDocument, question: str, file_id: str) -> str:
        """Return the answer's text. Raises what the client raises, RecursionError, and what a run reports as failed."""
        if way == LANGGRAPH:
            return await self._ask_recipe(document, question)
        if way == TRUNCATED:
            return await self.chat(self.truncate(document.text, question), OUTPUT_TOKENS)
        return await self._ask_strategy(way, question, file_id)

    async def upload(self, document: BenchDocument) -> str:
        made = await self.client.files.create(
            file=(f"{document.name}.txt", document.text.encode()), purpose="user_data"
        )
        return made.id

    async def chat(self, text: str, output_tokens: int) -> str:
        """One message to the model itself."""
        said = await self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], max_tokens=output_tokens, temperature=0
        )
        return said.choices[0].message.content or ""

    def chunks(self, document: BenchDocument) -> list[str]:
        """The texts of the very chunks that our strategies read."""
        text = Document.from_text(document.text, document.name)
        return [text.slice(chunk.span) for chunk in split_document(text, self.tokenizer, self.chunk_tokens)]

    def truncate(self, text: str, question: str) -> str:
        """A message that fits the context, with as much from both ends as goes in."""
        asked = self.tokenizer.count(_TRUNCATED.format(text=_CUT, question=question))
        room = self.context_tokens - OUTPUT_TOKENS - _MARGIN_TOKENS - asked
        if room < 2:
            raise SettingInvalid(f"A context of {self.context_tokens} tokens is too small for a truncated call.")
        ids = self.tokenizer.encode_content(text)
        if len(ids) > room:
            half = room // 2
            text = self.tokenizer.decode(ids[:half]) + _CUT + self.tokenizer.decode(ids[len(ids) - half :])
        return _TRUNCATED.format(text=text, question=question)

    async def _ask_recipe(self, document: BenchDocument, question: str) -> str:
        from benchmarks.systems.langgraph import ask_recipe, chat_model

        model = chat_model(f"{self.url}/v1", self.model, output_tokens=OUTPUT_TOKENS, call_s=CALL_S)
        return await ask_recipe(
            model, self.chunks(document), question, self.tokenizer.count, max_concurrency=CONCURRENCY
        )

    async def _ask_strategy(self, strategy: str, question: str, file_id: str) -> str:
        content: Any = [{"type": "file", "file": {"file_id": file_id}}, {"type": "text", "text": question}]
        said = await self.client.chat.completions.create(
            model=strategy,
            messages=[{"role": "user", "content": content}],
            extra_body={"longfold": {"options": self._options(strategy)}},
        )
        coverage = ((said.model_extra or {}).get("longfold") or {}).get("coverage") or {}
        if failed := coverage.get("failed"):
            raise InternalError(f"{failed} of {coverage.get('chunks')} chunks could not be read.")
        return said.choices[0].message.content or ""

    def _options(self, strategy: str) -> dict[str, int]:
        """The reference's schedule has a size of its own, as published."""
        return {} if strategy == "reference" else {"chunk_tokens": self.chunk_tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Usage of jobs, as the server reports it."""

    usage: Usage
    last_job: str
    """The newest of them; empty if there never was one."""


async def add_up_jobs(client: httpx2.AsyncClient, since: str = "") -> Cost:
    """Usage of all jobs since that one, the newest known one excluded."""
    usage, last, after = Usage(), since, ""
    while True:
        page = check(await client.get("/v1/jobs", params={"limit": 100} | ({"after": after} if after else {})))
        jobs: Sequence[Mapping[str, Any]] = page["data"]
        if not after and jobs:
            last = str(jobs[0]["id"])
        for job in jobs:
            if job["id"] == since:
                return Cost(usage=usage, last_job=last)
            for stage in (job["usage"] or {}).values():
                usage += Usage(**stage)
        if not page["has_more"]:
            return Cost(usage=usage, last_job=last)
        after = str(page["last_id"])
