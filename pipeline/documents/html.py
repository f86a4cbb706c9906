"""HTML to the lines a reader sees. Runs inside the limits of `extract_text`.

Blocks become lines, headings get Markdown's number signs, list items a dash, table rows one line with ` | ` between
cells; preformatted text keeps its lines. Scripts, styles and what the page hides are left out: they are not read.
"""

from __future__ import annotations

import re
import warnings

from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning
from bs4.element import NavigableString, PageElement, PreformattedString, Tag

_UNSEEN = frozenset({"script", "style", "template", "title", "iframe", "audio", "video"})
_PARAGRAPHS = re.compile(
    "address|article|aside|blockquote|body|details|dialog|div|dl|fieldset|figure|footer|form|h[1-6]|header|hgroup"
    "|hr|main|menu|nav|ol|p|pre|section|table|ul"
)
_LINES = re.compile("caption|dd|dt|figcaption|legend|li|option|summary|tbody|tfoot|thead|tr")
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r\f]+")
_LONGEST_ROW_CHARS = 300
"""A row that has this much already is no row of data: blocks in its cells become lines after all."""


def extract(data: bytes) -> list[tuple[str, str]]:
    """Return one part without a label. `data` is UTF-8; the caller has dealt with other encodings."""
    warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
    soup = BeautifulSoup(data.decode("utf-8"), "html.parser")
    title = _SPACE.sub(" ", soup.title.get_text()).strip() if soup.title else ""
    body = _visible_text(soup)
    return [("", f"{title}\n\n{body}" if title else body)]


def _visible_text(soup: BeautifulSoup) -> str:
    """Walk the tree with a stack of our own: a page may be nested deeper than Python recurses."""
    writer = _Writer()
    stack: list[PageElement | str] = [*reversed(soup.contents)]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and not isinstance(item, NavigableString):
            writer.close(item)
        elif isinstance(item, Tag):
            if item.name not in _UNSEEN and not _is_hidden(item):
                writer.open(item.name)
                stack.append(item.name)
                stack.extend(reversed(item.contents))
        elif isinstance(item, NavigableString) and not isinstance(item, PreformattedString):
            writer.write(str(item))
    return writer.text()


def _is_hidden(tag: Tag) -> bool:
    return tag.has_attr("hidden") or bool(_HIDDEN_STYLE.search(str(tag.get("style", ""))))


class _Writer:
    """Puts pieces of text together, with white space as a browser would show it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._newlines = 0
        """Owed before the next text; breaks that follow one another are one break."""
        self._line_chars = 0
        self._preformatted = 0
        self._rows: list[int] = []
        """Cells seen in the current row of each open table, innermost last."""

    def open(self, name: str) -> None:
        if name == "br":
            self._newlines += self._newlines < 2
        elif name in ("td", "th") and self._rows:
            self._open_cell()
        else:
            self._break_around(name)
        if name == "pre":
            self._preformatted += 1
        elif name == "table":
            self._rows.append(0)
        elif name == "tr" and self._rows:
            self._rows[-1] = 0
            self._newlines = max(self._newlines, 1)
        elif name == "li":
            self._put("- ")
        elif re.fullmatch("h[1-6]", name):
            self._put("#" * int(name[1]) + " ")

    def close(self, name: str) -> None:
        if name == "pre":
            self._preformatted -= 1
        elif name == "table":
            self._rows.pop()
        self._break_around(name)

    def write(self, text: str) -> None:
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
            if self._newlines or not self._line_chars or self._pieces[-1].endswith(" "):
                text = text.lstrip(" ")
        if text:
            self._put(text)

    def text(self) -> str:
        return "".join(self._pieces).rstrip(" ") + "\n"

    def _open_cell(self) -> None:
        if self._rows[-1]:
            self._newlines = 0
            self._put(" | ")
        else:
            self._put("")  # an empty first cell begins its line too
        self._rows[-1] += 1

    def _break_around(self, name: str) -> None:
        wanted = 2 if _PARAGRAPHS.fullmatch(name) else 1 if _LINES.fullmatch(name) else 0
        in_cell = bool(self._rows and self._rows[-1])
        if wanted and in_cell and name != "tr" and self._line_chars < _LONGEST_ROW_CHARS:
            self.write(" ")
        else:
            self._newlines = max(self._newlines, wanted)

    def _put(self, text: str) -> None:
        if self._newlines and self._pieces:
            self._pieces[-1] = self._pieces[-1].rstrip(" ") if not self._preformatted else self._pieces[-1]
            self._pieces.append("\n" * self._newlines)
            self._line_chars = 0
        self._newlines = 0
        self._pieces.append(text)
        self._line_chars += len(text)
