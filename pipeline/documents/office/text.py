"""Word, PowerPoint and Excel files to the text a reader sees. Runs inside the limits of `extract_text`.

As with HTML: headings get Markdown's number signs, list items a dash, table rows one line with ` | ` between cells.
Left out are deleted and hidden text, headers, footers and comments; a slide's notes stand below it.
"""

from __future__ import annotations

import re

from pipeline.documents.office.package import OfficePackage
from pipeline.documents.office.sheets import read_workbook
from pipeline.errors import DocumentUnreadable

_HEADING = re.compile(r"heading (\d)|title", re.IGNORECASE)
_LIST = re.compile(r"list (bullet|number)( \d)?", re.IGNORECASE)
_DASH = "- "
_SKIPPED = frozenset({"Fallback", "moveFrom", "del", "pPrChange", "rPrChange", "sectPr"})
_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_ROW, _ITEM, _PARAGRAPH = "row", "item", "paragraph"


def extract(data: bytes) -> list[tuple[str, str]]:
    """A Word document is one part without a label; slides and sheets are a part each, labelled."""
    package = OfficePackage(data)
    main = next((name for kind, name in package.targets("").values() if kind == "officeDocument"), "")
    root = _Root()
    package.read(main, root)
    match root.tag:
        case "document":
            parts = [("", _read_document(package, main))]
        case "presentation":
            parts = _read_slides(package, main, root.slide_ids)
        case "workbook":
            parts = read_workbook(package, main)
        case _:
            raise DocumentUnreadable("is a zip file, but no Word, PowerPoint or Excel file; unpack it first.")
    parts = [(label, text) for label, text in parts if text.strip()]
    if not parts:
        raise DocumentUnreadable("has no text, perhaps only images; run text recognition (OCR) on it first.")
    return parts


def _read_document(package: OfficePackage, main: str) -> str:
    by_kind = dict(package.targets(main).values())
    styles = _Styles()
    package.read(by_kind.get("styles", ""), styles)
    body = _Body(styles.prefixes)
    package.read(main, body)
    for kind in ("footnotes", "endnotes"):
        package.read(by_kind.get(kind, ""), body)
    return body.text()


def _read_slides(package: OfficePackage, main: str, slide_ids: list[str]) -> list[tuple[str, str]]:
    targets = package.targets(main)
    slides = []
    for number, slide_id in enumerate(slide_ids, start=1):
        if slide_id not in targets:
            continue
        _, name = targets[slide_id]
        slide, notes = _Body({}), _Body({})
        package.read(name, slide)
        for kind, note in package.targets(name).values():
            if kind == "notesSlide":
                package.read(note, notes)
        spoken = notes.text().strip()
        slides.append((f"slide {number}", slide.text() + (f"\nNotes:\n\n{spoken}\n" if spoken else "")))
    return slides


class _Root:
    """What the main part is, and a presentation's slides in their order."""

    def __init__(self) -> None:
        self.tag = ""
        self.slide_ids: list[str] = []

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = self.tag or tag
        if tag == "sldId":
            self.slide_ids.append(attributes.get("r:id", ""))

    def close(self, tag: str) -> None: ...

    def write(self, text: str) -> None: ...


class _Styles:
    """What paragraphs of a style begin with; styles' ids are in the author's language, their names are not."""

    def __init__(self) -> None:
        self.prefixes: dict[str, str] = {}
        self._style_id = ""

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "style":
            self._style_id = attributes.get("styleId", "")
        elif tag == "name" and (heading := _HEADING.fullmatch(attributes.get("val", ""))):
            self.prefixes[self._style_id] = "#" * int(heading[1] or 1) + " "
        elif tag == "name" and _LIST.fullmatch(attributes.get("val", "")):
            self.prefixes[self._style_id] = _DASH

    def close(self, tag: str) -> None: ...

    def write(self, text: str) -> None: ...


class _Body:
    """Paragraphs and tables; paragraphs stand in cells, tables in cells, text boxes in paragraphs."""

    def __init__(self, style_prefixes: dict[str, str]) -> None:
        self._style_prefixes = style_prefixes
        self._blocks: list[list[tuple[str, str]]] = [[]]
        """(kind, text) of the body, and of each open cell, innermost last."""
        self._rows: list[list[str]] = []
        self._paragraphs: list[list[str]] = []
        self._prefix = ""
        self._note = ""
        self._skipped = ""
        self._skipped_depth = 0
        self._properties: list[str] = []
        self._in_title = False
        self._in_text = False
        self._is_hidden = False

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipped:
            self._skipped_depth += tag == self._skipped
        elif tag in _SKIPPED or (tag == "fld" and attributes.get("type", "").startswith("slidenum")):
            self._skipped, self._skipped_depth = tag, 1
        elif tag in ("pPr", "rPr"):
            self._properties.append(tag)
        elif self._properties:
            self._read_property(tag, attributes)
        else:
            self._open_content(tag, attributes)

    def close(self, tag: str) -> None:
        if self._skipped:
            self._skipped_depth -= tag == self._skipped
            if not self._skipped_depth:
                self._skipped = ""
        elif tag in ("pPr", "rPr"):
            self._properties.pop()
        elif tag == "t":
            self._in_text = False
        elif tag == "r":
            self._is_hidden = False
        elif tag == "sp":
            self._in_title = False
        else:
            self._close_block(tag)

    def write(self, text: str) -> None:
        if self._in_text and not self._skipped and not self._is_hidden:
            self._put(text)

    def text(self) -> str:
        pieces: list[str] = []
        before = ""
        for kind, text in self._blocks[0]:
            if pieces:
                pieces.append("\n" if kind == before != _PARAGRAPH else "\n\n")
            pieces.append(text)
            before = kind
        return "".join(pieces) + "\n"

    def _read_property(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "pStyle":
            self._prefix = self._style_prefixes.get(attributes.get("val", ""), self._prefix)
        elif tag == "numPr" and not self._prefix:
            self._prefix = _DASH
        elif tag == "vanish" and self._properties == ["rPr"]:  # in a paragraph's properties it hides only its mark
            self._is_hidden = attributes.get("val", "1") not in ("0", "false", "off")

    def _open_content(self, tag: str, attributes: dict[str, str]) -> None:
        match tag:
            case "p":
                self._paragraphs.append([])
                self._is_hidden = False
                self._prefix = "# " if self._in_title else self._note
                self._note = ""
            case "t":
                self._in_text = True
            case "tab" | "br" | "cr" | "noBreakHyphen":
                self._put(_MARKS[tag])
            case "footnoteReference" | "endnoteReference":
                self._put(f"[^{tag[:-9]} {attributes.get('id', '')}]")
            case "footnote" | "endnote":
                self._note = f"[^{tag} {attributes.get('id', '')}] "
            case "ph":
                self._in_title = attributes.get("type") in ("title", "ctrTitle")
            case "tr":
                self._rows.append([])
            case "tc":
                self._blocks.append([])

    def _close_block(self, tag: str) -> None:
        if tag == "p" and self._paragraphs:
            text = "".join(self._paragraphs.pop()).strip()
            if text:
                kind = _ITEM if self._prefix == _DASH else _PARAGRAPH
                self._blocks[-1].append((kind, self._prefix + text))
            self._prefix = ""
        elif tag == "tc" and len(self._blocks) > 1 and self._rows:
            cell = " ".join(" ".join(text.split("\n")) for _, text in self._blocks.pop())
            self._rows[-1].append(cell)
        elif tag == "tr" and self._rows:
            cells = self._rows.pop()
            if any(cell.strip() for cell in cells):
                self._blocks[-1].append((_ROW, " | ".join(cells)))

    def _put(self, text: str) -> None:
        if self._paragraphs:
            self._paragraphs[-1].append(text)
