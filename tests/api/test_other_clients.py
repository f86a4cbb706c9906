"""Clients that are not OpenAI's own: LangChain, the `llm` command, curl."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api.openai_rig import BOOK, GREETING, QUESTION, Service, about_file, service

__all__ = ["service"]


async def run(*command: str, typed: str | None = None, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if typed is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    output, errors = await process.communicate(None if typed is None else typed.encode())
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_langchain_asks_and_streams(service: Service) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(model="mapreduce", base_url=service.url, api_key="none", max_retries=0)
    messages: list[Any] = [("system", "Be brief."), ("user", [{"type": "text", "text": BOOK}]), ("user", QUESTION)]
    answer = await model.ainvoke(messages)
    assert answer.content == "Anselm"
    assert answer.usage_metadata["input_tokens"] > 0
    pieces = [piece async for piece in model.astream(messages)]
    assert "".join(str(piece.content) for piece in pieces) == "Anselm"


async def test_langchain_stuffs_a_prompt(service: Service) -> None:
    langchain = pytest.importorskip("langchain_openai")
    prompts = pytest.importorskip("langchain_core.prompts")
    template = "Answer from the context alone.\n\n{context}\n\nQuestion: {question}\nHelpful Answer:"
    model = langchain.ChatOpenAI(model="auto", base_url=service.url, api_key="none", max_retries=0, top_p=0.9)
    chain = prompts.ChatPromptTemplate.from_template(template) | model
    assert (await chain.ainvoke({"context": BOOK, "question": QUESTION})).content == "Anselm"


async def test_langchain_sends_files_and_uses_responses(service: Service) -> None:
    langchain = pytest.importorskip("langchain_openai")
    messages = pytest.importorskip("langchain_core.messages")
    file_id = await service.upload()
    asked = [messages.HumanMessage(content=about_file(file_id)[0]["content"])]
    plain = langchain.ChatOpenAI(model="auto", base_url=service.url, api_key="none", max_retries=0)
    assert (await plain.ainvoke(asked)).content == "Anselm"
    responses = langchain.ChatOpenAI(
        model="auto", base_url=service.url, api_key="none", max_retries=0, use_responses_api=True
    )
    assert (await responses.ainvoke(asked)).text == "Anselm"


async def test_the_llm_command_asks_with_its_own_configuration_and_key(service: Service, tmp_path: Path) -> None:
    """Without `api_key_name` it sends a key of its own making, whatever `--key` says."""
    pytest.importorskip("llm")
    folder = tmp_path / "llm"
    folder.mkdir()
    secret = (await service.rig.make_key())["authorization"].removeprefix("Bearer ")
    (folder / "keys.json").write_text(json.dumps({"longfold": secret}), encoding="utf-8")
    models = "".join(
        f"- model_id: {name}\n  model_name: {model}\n  api_base: {service.url}\n  api_key_name: longfold\n"
        for name, model in (("plain", "model"), ("longfold", "auto"))
    )
    (folder / "extra-openai-models.yaml").write_text(models, encoding="utf-8")
    command = (sys.executable, "-m", "llm", "-m")
    environment = {"LLM_USER_PATH": str(folder), "HOME": str(tmp_path)}
    for options in ((), ("--no-stream",)):
        said = await run(*command, "plain", *options, "Hello", **environment)
        assert said.strip() == GREETING
    for options in (("-s", QUESTION), (QUESTION,), ("-o", "top_p", "0.9", "-s", QUESTION)):
        said = await run(*command, "longfold", *options, typed=f"{BOOK}\n", **environment)
        assert said.strip() == "Anselm"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_uploads_asks_and_reads_a_stream(service: Service, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text(BOOK, encoding="utf-8")
    uploaded = await run("curl", "-sS", f"{service.url}/files", "-F", "purpose=user_data", "-F", f"file=@{book}")
    file_id = json.loads(uploaded)["id"]
    body = json.dumps({"model": "mapreduce", "stream": True, "messages": about_file(file_id)})
    streamed = await run(
        "curl", "-sSN", f"{service.url}/chat/completions", "-H", "content-type: application/json", "-d", body
    )
    lines = [line.removeprefix("data: ") for line in streamed.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Anselm"
