"""What a person does with the console, in a real browser, on the real gateway and runner."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from pipeline.llm.scripted import Script
from tests.browser.conftest import OpenPage, ServeConsole, ask, final_answer, playwright, write_story
from tests.factories import make_tokenizer, reading_script

expect = playwright.expect
FACT = "The harbour master was Ada Quill."
OTHER = "In an older list the harbour master was Bo Lind."
PHONE = {"viewport": {"width": 360, "height": 740}}


def reader() -> Script:
    return reading_script(make_tokenizer(), [(FACT, "Ada Quill"), (OTHER, "Bo Lind")])


async def test_a_question_is_followed_from_upload_to_the_highlighted_quote(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    """Plan before, live tree while, answer after; a citation leads to the very words it quotes."""
    console = await serve(reader())
    console.model.hold_maps_after(5)
    page = await open_page(console.url)
    document = write_story(tmp_path, {40: FACT})
    await page.set_input_files("#file-field", document)
    await page.locator(".file input:checked").wait_for()
    await page.locator("#question").fill("Who was the harbour master?")
    await page.get_by_role("button", name="Plan", exact=True).click()
    await expect(page.locator(".figures")).to_contain_text("Chunks")
    await expect(page.locator("#service")).to_have_text(console.rig.model.profile.name)
    await expect(page.get_by_role("img", name=re.compile("^Stages: .* to reduce"))).to_be_visible()
    await page.get_by_role("button", name="Run", exact=True).click()

    await expect(page.locator(".connection")).to_have_text("Live")
    await expect(page.locator("[data-stage=map] .stage-count")).to_have_text(re.compile(r"^[1-9]\d* / \d+$"))
    await expect(page.locator(".tree-row", has_text="Reduce").locator(".tree-waits")).to_have_count(1)
    console.model.release()

    assert (await final_answer(page)).startswith("Ada Quill")
    await expect(page.locator(".tree-row", has_text="Reduce").locator(".node")).to_be_visible()
    await page.get_by_role("button", name="Show citation 1").click()
    await expect(page.locator("mark.focus")).to_contain_text(FACT)
    assert await page.locator("mark.focus").text_content() == await page.locator("q.quote").first.text_content()
    assert re.search(r"#job=job_\w+&span=\d+-\d+$", page.url)


async def test_a_reload_in_the_middle_restores_what_was_there(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    console.model.hold_maps_after(5)
    page = await open_page(console.url)
    await ask(page, write_story(tmp_path, {2: FACT, 40: OTHER}))
    count = page.locator("[data-stage=map] .stage-count")
    await expect(count).to_have_text(re.compile("^5 / "))
    before = await count.text_content()
    await expect(page.locator(".answer-text")).to_have_text("Ada Quill")
    await expect(page.locator(".badge-provisional")).to_be_visible()
    await expect(page.locator(".citation q")).to_contain_text(FACT)

    await page.reload()

    await expect(count).to_have_text(before or "")
    await expect(page.locator(".answer-text")).to_have_text("Ada Quill")
    console.model.release()
    await final_answer(page)
    await page.get_by_role("button", name="Show citation 1").click()
    quoted = await page.locator("mark.focus").text_content()

    await page.reload()

    await expect(page.locator("mark.focus")).to_have_text(quoted or "")
    await final_answer(page)


async def test_a_run_waits_for_a_person_and_goes_on_with_what_was_changed(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    page = await open_page(console.url)
    await page.set_input_files("#file-field", write_story(tmp_path, {40: FACT}))
    await page.locator(".file input:checked").wait_for()
    await page.locator("#question").fill("Who was the harbour master?")
    await page.get_by_text("Limits and pauses").click()
    await expect(page.locator("#pause-before")).to_be_disabled()
    await page.locator("#strategy").select_option("mapreduce")
    await page.locator("#pause-before").select_option("reduce")
    await page.get_by_role("button", name="Plan", exact=True).click()
    await page.get_by_role("button", name="Run", exact=True).click()

    state = page.locator("#paused-state")
    await expect(state).to_have_value(re.compile('"answer": "Ada Quill"'))
    await expect(page.locator(".job-head .badge")).to_have_text("paused")
    found = await state.input_value()
    for wrong, told in (("{", "JSON"), (found.replace('"answer"', '"answr"'), "answr")):
        await state.fill(wrong)
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator("[role=alert]").first).to_contain_text(told)
    await expect(state).to_have_value(re.compile("answr"))  # what was written is still there
    await state.fill(found.replace('"answer": "Ada Quill"', '"answer": "Berta Lund"'))
    await page.get_by_role("button", name="Resume").click()
    assert (await final_answer(page)).startswith("Berta Lund")
    await expect(state).to_be_hidden()


async def test_both_sides_of_a_conflict_are_shown_with_their_quotes(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    page = await open_page(console.url)
    await ask(page, write_story(tmp_path, {2: FACT, 40: OTHER}))
    await final_answer(page)
    other = page.locator(".side:not(.chosen)")
    await expect(other.locator(".side-answer")).to_have_text("Bo Lind")
    await expect(other).to_contain_text("Confidence")
    await other.get_by_role("button", name="Show citation 2").click()
    await expect(page.locator("mark.focus")).to_contain_text(OTHER)


HOSTILE = (
    "The harbour master was <img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>."
)


async def test_markup_in_a_document_is_text_everywhere(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    """In the document's name, its text, a quote, an answer, the question: nothing of it becomes an element."""
    answer = "<img src=x onerror=\"document.title='owned'\">"
    console = await serve(reading_script(make_tokenizer(), [(HOSTILE, answer)]))
    page = await open_page(console.url)
    document = write_story(tmp_path, {30: HOSTILE}, name="<img src=x onerror=alert(1)>.txt")
    await ask(page, document, "Who was <b>it</b>? <script>document.title='owned'</script>")
    assert answer in await final_answer(page)
    await page.get_by_role("button", name="Show citation 1").click()
    await expect(page.locator("mark.focus")).to_contain_text("onerror")
    assert HOSTILE in (await page.locator("mark.focus").text_content() or "")
    await expect(page.locator("h1")).to_contain_text("<b>it</b>")
    assert (await page.title()).startswith("Who was <b>it</b>? <script>")  # as text: an element would have changed it
    assert await page.locator("main img, main script, main b").count() == 0
    await page.goto(console.url + "#ask")
    await expect(page.locator(".jobs")).to_contain_text("<script>")
    assert await page.locator("main img, main script, main b").count() == 0


async def test_the_document_is_fetched_in_ranges(serve: ServeConsole, open_page: OpenPage, tmp_path: Path) -> None:
    """A long document is never loaded whole, and scrolling brings what comes next."""
    console = await serve(reader())
    page = await open_page(console.url)
    ranges: list[tuple[int, int]] = []
    pattern = re.compile(r"/text\?start=(\d+)&end=(\d+)")
    page.on(
        "request",
        lambda request: (m := pattern.search(request.url)) and ranges.append((int(m[1]), int(m[2]))),
    )
    await ask(page, write_story(tmp_path, {300: FACT}, paragraphs=600))
    await final_answer(page)
    await page.get_by_role("button", name="Show citation 1").click()
    await expect(page.locator("mark.focus")).to_contain_text(FACT)
    assert max(end - start for start, end in ranges) <= 4000
    fetched = sum(end - start for start, end in set(ranges))
    assert fetched < 20_000
    async with asyncio.timeout(20):
        while max(end for _, end in ranges) < 170_000:
            await page.locator(".document-text").evaluate("node => { node.scrollTop = node.scrollHeight }")
            await asyncio.sleep(0.05)
    assert await page.locator(".block").count() <= 8


async def test_everything_is_reached_by_keyboard_alone(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    """From the question to a chunk's text and back, without a pointer."""
    console = await serve(reader())
    page = await open_page(console.url)
    await page.set_input_files("#file-field", write_story(tmp_path, {2: FACT}))
    await page.locator(".file input:checked").wait_for()
    await page.keyboard.press("Tab")
    await expect(page.locator("#skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await _tab_to(page, "#question")
    await page.keyboard.type("Who was the harbour master?")
    await _tab_to(page, "form .actions .quiet")
    await page.keyboard.press("Enter")
    await page.locator(".plan .figures").wait_for()
    await page.keyboard.press("Enter")  # the plan puts the focus on Run
    await final_answer(page)
    await _tab_to(page, ".ribbon")
    ribbon = page.locator(".ribbon")
    await expect(ribbon).to_have_attribute("aria-valuetext", re.compile("^Chunk 1 of "))
    await page.keyboard.press("n")
    await expect(ribbon).to_have_attribute("aria-valuetext", re.compile("Ada Quill.*confidence"))
    await page.keyboard.press("Enter")
    await expect(page.locator("mark.quote")).to_contain_text(FACT)
    await page.keyboard.press("Escape")
    await expect(ribbon).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_needs_no_sideways_scrolling(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path, scheme: str
) -> None:
    console = await serve(reader())
    page = await open_page(console.url, **PHONE, color_scheme=scheme)
    await _fits(page)
    await ask(page, write_story(tmp_path, {2: FACT, 40: OTHER}))
    await final_answer(page)
    await _fits(page)
    await page.get_by_role("button", name="Show citation 1").click()
    await expect(page.locator("mark.focus")).to_be_in_viewport()
    await page.goto(console.url + "#compare")
    await page.locator(".strategies input").first.wait_for()
    await _fits(page)


async def test_a_lost_connection_is_said_and_mended_without_gap_or_repeat(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    console.model.hold_maps_after(5)
    page = await open_page(console.url)
    await ask(page, write_story(tmp_path, {2: FACT}))
    count = page.locator("[data-stage=map] .stage-count")
    await expect(count).to_have_text(re.compile("^5 / "))
    await console.stop_gateway()
    await expect(page.locator(".connection")).to_contain_text("Connection lost")
    console.model.release()
    await console.start_gateway()
    assert (await final_answer(page)).startswith("Ada Quill")
    await _every_chunk_was_mapped_once(page)


async def test_a_key_is_asked_for_and_kept_in_the_tab(serve: ServeConsole, open_page: OpenPage, tmp_path: Path) -> None:
    console = await serve(reader())
    _, secret = await console.keys.create(name="team")
    page = await open_page(console.url)
    dialog = page.get_by_role("dialog", name="API key")
    await dialog.get_by_label("Key").fill("lf_wrong")
    await dialog.get_by_role("button", name="Use this key").click()
    await expect(dialog).to_contain_text("did not accept")
    await dialog.get_by_label("Key").fill(secret)
    await dialog.get_by_role("button", name="Use this key").click()
    await expect(page.locator(".files")).to_contain_text("No documents yet")
    await ask(page, write_story(tmp_path, {2: FACT}))
    await final_answer(page)
    assert secret not in page.url
    assert await page.evaluate("Object.values(sessionStorage).length") == 1
    assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


async def test_cancel_stops_a_run_and_retry_goes_on_from_there(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    console.model.hold_maps_after(5)
    page = await open_page(console.url)
    await ask(page, write_story(tmp_path, {2: FACT}))
    await expect(page.locator("[data-stage=map] .stage-count")).to_have_text(re.compile("^5 / "))
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".job-facts .badge")).to_have_text("cancelled")
    console.model.release()
    await page.get_by_role("button", name="Retry").click()
    assert (await final_answer(page)).startswith("Ada Quill")
    await _every_chunk_was_mapped_once(page)


async def test_documents_and_questions_are_deleted_after_a_second_press(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    console = await serve(reader())
    page = await open_page(console.url)
    await ask(page, write_story(tmp_path, {2: FACT}, paragraphs=5))
    await final_answer(page)
    await page.get_by_role("link", name="Ask", exact=True).click()
    for row in (page.locator(".files"), page.locator(".jobs")):
        delete = row.get_by_role("button", name="Delete")
        await delete.click()
        await delete.blur()
        await expect(delete).to_have_text("Delete")  # whoever turns away has not deleted
        await delete.click()
        await row.get_by_role("button", name="Really delete?").click()
    await expect(page.locator(".files")).to_contain_text("No documents yet")
    await expect(page.locator(".recent")).to_contain_text("No questions yet")
    await page.reload()
    await expect(page.locator(".files")).to_contain_text("No documents yet")
    await expect(page.locator(".recent")).to_contain_text("No questions yet")


async def test_pasted_text_is_a_document_too(serve: ServeConsole, open_page: OpenPage, tmp_path: Path) -> None:
    console = await serve(reader())
    page = await open_page(console.url)
    await page.get_by_text("Paste text instead").click()
    await page.get_by_label("Text to ask about").fill(write_story(tmp_path, {2: FACT}, paragraphs=5).read_text())
    await page.get_by_role("button", name="Use this text").click()
    await page.locator(".file input:checked").wait_for()
    await page.locator("#question").fill("Who was the harbour master?")
    await page.get_by_role("button", name="Ask", exact=True).click()
    assert (await final_answer(page)).startswith("Ada Quill")


async def test_strategies_are_compared_side_by_side_and_saved(
    serve: ServeConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    """A cell that a spreadsheet would run as a formula is saved as text."""
    console = await serve(reading_script(make_tokenizer(), [(FACT, "=1+1 Ada Quill")]))
    page = await open_page(console.url + "#compare")
    await page.set_input_files("#file-field", write_story(tmp_path, {2: FACT}))
    await page.locator(".file input:checked").wait_for()
    await page.locator("#question").fill("Who was the harbour master?")
    await page.get_by_role("button", name="Compare", exact=True).click()
    await expect(page.locator(".comparison .state-completed")).to_have_count(2)
    await expect(page.locator(".comparison thead")).to_contain_text("Map-reduce")
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="Save CSV").click()
    path = tmp_path / "saved.csv"
    await (await saving.value).save_as(path)
    assert "'=1+1 Ada Quill" in path.read_text("utf-8")
    compared = page.url
    await page.reload()
    assert page.url == compared
    await expect(page.locator(".comparison .state-completed")).to_have_count(2)


async def test_a_job_that_is_not_there_is_said(serve: ServeConsole, open_page: OpenPage) -> None:
    console = await serve(reader())
    page = await open_page(console.url + "#job=job_01K9ZJ3W5T8Q4V6X2B7N9M1C0D")
    await expect(page.get_by_role("alert")).to_contain_text("There is no job")


async def _tab_to(page: playwright.Page, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


async def _every_chunk_was_mapped_once(page: playwright.Page) -> None:
    chunks = await page.locator(".ribbon").get_attribute("aria-valuemax")
    await expect(page.locator(".usage tbody tr", has_text="Map").locator("td").first).to_have_text(chunks or "")


async def _fits(page: playwright.Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
