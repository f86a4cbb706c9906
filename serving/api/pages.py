"""What a browser gets: the console at `/`, the API's description at `/docs`. Every file is our own and local."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response

PAGES = Path(__file__).parent / "docs"
CONSOLE = Path(__file__).parents[1] / "console"

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def serve_pages(app: FastAPI) -> None:
    """One route per file that is there now: no path from a request ever touches the disk."""
    for path in sorted(CONSOLE.glob("**/*")):
        if path.suffix in _MEDIA_TYPES:
            name = path.relative_to(CONSOLE).as_posix()
            _serve(app, "/" if name == "index.html" else f"/{name}", path)
    _serve(app, "/docs", PAGES / "docs.html")
    for path in sorted(PAGES.iterdir()):
        if path.suffix in (".js", ".css"):
            _serve(app, f"/docs/{path.name}", path)


def _serve(app: FastAPI, url_path: str, path: Path) -> None:
    media_type = _MEDIA_TYPES[path.suffix]

    async def send(_: Request) -> Response:
        return FileResponse(path, media_type=media_type, headers={"cache-control": "no-cache"})

    app.add_route(url_path, send, methods=["GET", "HEAD"], include_in_schema=False)
