"""What single modules of the console promise; they run where they will run, in a browser."""

from __future__ import annotations

import csv
import io
from typing import Any

from serving.flowchart import draw_flowchart
from tests.api.rig import reader
from tests.browser.conftest import OpenPage, ServeConsole


async def test_exports_cannot_run_anything(serve: ServeConsole, open_page: OpenPage) -> None:
    """Formulas become text in CSV, whatever stands before them; markup and table bars become text in Markdown."""
    page = await open_page((await serve(reader())).url)
    cells = ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", 'said "yes", twice', "line\nbreak", "plain"]
    exported = await page.evaluate(
        """async (cells) => {
            const { toCsv, toMarkdown } = await import("/compare_export.js");
            return { csv: toCsv([["", "a"], ...cells.map((cell, at) => [at, cell])]),
                     markdown: toMarkdown("<b>", [["", "x|y"], ["a\\nb", "<script>"]]) };
        }""",
        cells,
    )
    rows = list(csv.reader(io.StringIO(exported["csv"], newline="")))[1:]
    assert [row[1] for row in rows] == [f"'{cell}" if position < 6 else cell for position, cell in enumerate(cells)]
    assert rows[3][0] == "3"
    assert "\\<script\\>" in exported["markdown"]
    assert "x\\|y" in exported["markdown"]
    assert "| a b |" in exported["markdown"]


async def test_a_run_is_the_same_live_replayed_and_resumed(serve: ServeConsole, open_page: OpenPage) -> None:
    """A failed chunk that is read later is found; a job that was retried is not over; the tree counts what went in."""
    page = await open_page((await serve(reader())).url)
    spans = [[0, 10], [10, 20], [20, 30]]
    found = {"empty": False, "answer": "x", "confidence": 4, "probability": 0.7, "evidence": []}
    failed = {"stage": "map", "chunk": 1, "state": "failed", "error": "CallTimedOut", "tokens": [0, 0, 0]}
    history: list[tuple[str, dict[str, Any]]] = [
        ("job.started", {"attempt": 1}),
        ("split", {"spans": spans}),
        ("stage.started", {"stage": "map", "calls": 3}),
        ("chunk.mapped", {"chunk": 0, "span": spans[0], **found}),
        ("call.finished", failed),
        ("job.failed", {"state": "failed", "error": {"message": "no replica"}}),
        ("job.queued", {"again": True}),
        ("job.started", {"attempt": 1}),
        ("chunk.mapped", {"chunk": 1, "span": spans[1], **found}),
        ("chunk.mapped", {"chunk": 2, "span": spans[2], **found, "empty": True}),
        ("collapsed", {"depth": 1, "chunks": [0, 1]}),
        ("call.finished", {"stage": "reduce", "chunk": None, "state": "ok", "tokens": [9, 4, 1], "cached": False}),
    ]
    seen = await page.evaluate(
        """async (history) => {
            const { newRun, applyEvent } = await import("/run_state.js");
            const { treeRows } = await import("/tree.js");
            const run = newRun();
            const states = history.map(([kind, data], at) => (applyEvent(run, { kind, data, at }), run.state));
            return { states, chunks: run.chunks.map((chunk) => chunk.state), error: run.error,
                     rows: treeRows(run).map((row) => [row.label, row.nodes.map((node) => node.parts.length)]) };
        }""",
        history,
    )
    assert seen["states"][5] == "failed"
    assert seen["states"][-1] == "running"
    assert seen["error"] is None
    assert seen["chunks"] == ["found", "found", "empty"]
    assert seen["rows"] == [["Collapse 1", [2]], ["Reduce", [1]]]


async def test_a_plan_is_drawn_as_an_image_in_which_nothing_runs(serve: ServeConsole, open_page: OpenPage) -> None:
    page = await open_page((await serve(reader())).url)
    drawing = draw_flowchart("flowchart LR\n    a --> b[split ×3]").replace(
        "</svg>", "<script>document.title = 'owned'</script><image href='https://example.com/x.png'/></svg>"
    )
    await page.evaluate(
        """async (graph_svg) => {
            const { planView } = await import("/plan.js");
            document.body.append(planView({ strategy: "mapreduce", graph_svg, chunks: 3 }));
        }""",
        drawing,
    )
    image = page.get_by_role("img", name="Stages: a to split ×3")
    assert await image.evaluate("async (image) => (await image.decode(), image.naturalWidth)") > 100
    assert await page.title() == "Longfold"


async def test_what_was_read_differs_from_what_was_not_at_any_width(serve: ServeConsole, open_page: OpenPage) -> None:
    """On a phone a hundred chunks are three pixels wide each, and the map must still show how far the run is."""
    page = await open_page((await serve(reader())).url)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        told = await page.evaluate(
            """async () => {
                const { CellPaint } = await import("/cell_paint.js");
                const paint = new CellPaint(document.body);
                const pixels = (state, width) => {
                    const canvas = Object.assign(document.createElement("canvas"), { width: 10, height: 40 });
                    const context = canvas.getContext("2d");
                    paint.cell(context, { state, confidence: 1 }, 0, 0, width, 40);
                    return [...context.getImageData(0, 0, 1, 40).data];
                };
                return [1, 1.5, 2.8, 5, 8].map((width) => ["gated", "empty", "found", "failed"].map((state) => {
                    const unread = pixels("waiting", width);
                    return Math.max(...pixels(state, width).map((value, at) => Math.abs(value - unread[at])));
                }));
            }"""
        )
        for gated, *read in told:
            assert gated > 5
            assert min(read) > 25, (scheme, told)


async def test_on_a_phone_the_bar_holds_its_button_and_why_the_service_is_not_ready(
    serve: ServeConsole, open_page: OpenPage
) -> None:
    page = await open_page((await serve(reader())).url)
    await page.set_viewport_size({"width": 390, "height": 844})
    told = await page.evaluate(
        """() => {
            const service = document.getElementById("service");
            service.classList.remove("ready");
            service.textContent = "No runner is alive; the last one said: it did not start: no memory. Start one.";
            const box = (element) => element.getBoundingClientRect();
            const [bar, button] = [box(document.querySelector(".top")), box(document.getElementById("key-button"))];
            return { inside: button.top >= bar.top && button.bottom <= bar.bottom, button: button.height,
                     cut: service.scrollHeight - service.clientHeight, over: document.body.scrollWidth - innerWidth };
        }"""
    )
    assert told["inside"], told
    assert told["button"] < 50, "in one line"
    assert (told["cut"] <= 0, told["over"] <= 0) == (True, True), told
