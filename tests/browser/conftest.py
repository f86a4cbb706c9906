"""A page of headless Chromium on a running console. Whatever a test does, the page must stay within its rules."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright import async_api as playwright

from pipeline.llm.scripted import Script
from tests.browser.console_rig import Console, running_console

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
playwright.expect.set_options(timeout=30_000)  # a busy machine is no fault of the page
QUESTION = "Who was the harbour master?"
FILLER = "The harbour was quiet that morning and the boats lay still. " * 8


def find_chromium() -> str | None:
    """LONGFOLD_TEST_CHROMIUM, or a browser of the system; Playwright's own is not downloaded."""
    return os.environ.get("LONGFOLD_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@dataclass
class Watched:
    """What the page did that a user would not see."""

    addresses: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Errors of scripts, and of the content security policy."""


OpenPage = Callable[..., Awaitable["playwright.Page"]]
ServeConsole = Callable[[Script], Awaitable[Console]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[ServeConsole]:
    """Serves a console whose model follows a script."""
    async with AsyncExitStack() as stack:

        async def begin(script: Script) -> Console:
            return await stack.enter_async_context(running_console(tmp_path, script))

        yield begin


@pytest.fixture
async def open_page() -> AsyncIterator[OpenPage]:
    """Opens pages; in the end none of them may have left its own address or broken a rule."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(f"no Chromium: none of {', '.join(_NAMES)} on the PATH, LONGFOLD_TEST_CHROMIUM not set")
    watched: dict[str, Watched] = {}
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        async def begin(address: str, **context: object) -> playwright.Page:
            page = await (await browser.new_context(**context)).new_page()
            _watch(page, watched.setdefault(address.partition("#")[0], Watched()))
            await page.goto(address)
            return page

        yield begin
        await browser.close()
    for address, seen in watched.items():
        assert seen.complaints == []
        assert [each for each in seen.addresses if not each.startswith((address, "data:", "blob:" + address))] == []


def _watch(page: playwright.Page, seen: Watched) -> None:
    def on_console(message: playwright.ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or "Content-Security-Policy" in message.text:
            seen.complaints.append(message.text)

    page.on("request", lambda request: seen.addresses.append(request.url))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
    page.on("console", on_console)


def write_story(folder: Path, facts: dict[int, str], *, paragraphs: int = 60, name: str = "story.txt") -> Path:
    """A document of many chunks. Characters outside the basic plane stand before every fact."""
    texts = [f"Section {i}. 😀𝔘 {FILLER}{facts.get(i, '')}" for i in range(paragraphs)]
    path = folder / name
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


async def ask(page: playwright.Page, document: Path, question: str = QUESTION) -> None:
    """Upload, plan, run."""
    await page.set_input_files("#file-field", document)
    await page.locator(".file input:checked").wait_for()
    await page.locator("#question").fill(question)
    await page.get_by_role("button", name="Plan", exact=True).click()
    await page.get_by_role("button", name="Run", exact=True).click()
    await page.locator(".ribbon").wait_for()


async def final_answer(page: playwright.Page) -> str:
    """The answer's text, when it is there for good."""
    await page.locator(".answer-panel .answer-standing", has_text="read (").wait_for()
    return await page.locator(".answer-panel .answer-text").inner_text()
