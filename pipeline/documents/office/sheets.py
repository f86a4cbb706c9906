"""The sheets of an Excel file: a line for each row, ` | ` between cells, values as a reader sees them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from pipeline.documents.office.package import OfficePackage
from pipeline.errors import DocumentUnreadable

MAX_CHARS = 128 << 20
"""Of all sheets together: one long text can be referred to by a million cells."""
_MAX_COLUMNS_KEPT_EMPTY = 64
"""A cell further to the right of its neighbour follows it directly."""
_DATE_FORMATS = frozenset(range(14, 18)) | frozenset(range(27, 32)) | {36, *range(50, 59)}
_TIME_FORMATS = frozenset(range(18, 22)) | {32, 33, 34, 35, 45, 46, 47}
_DATE_AND_TIME_FORMAT = 22
_NOT_A_CODE = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.|_.|\*.')
_DAY_ZERO, _DAY_ZERO_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001  cells have no time zone
_LAST_DAY = 2_958_465
"""31 December 9999."""


def read_workbook(package: OfficePackage, main: str) -> list[tuple[str, str]]:
    """(label, text) of each sheet, in the order of its tabs."""
    workbook = _Workbook()
    package.read(main, workbook)
    targets = package.targets(main)
    by_kind = dict(targets.values())
    strings, styles = _Strings(), _Styles()
    package.read(by_kind.get("sharedStrings", ""), strings)
    package.read(by_kind.get("styles", ""), styles)
    formats = styles.formats()
    sheets = []
    left_chars = MAX_CHARS
    for name, sheet_id in workbook.sheets:
        sheet = _Sheet(strings.texts, formats, workbook.day_zero, left_chars)
        if sheet_id in targets:
            package.read(targets[sheet_id][1], sheet)
        left_chars = sheet.left_chars
        sheets.append((f"sheet {name}", "".join(sheet.lines)))
    return sheets


class _Workbook:
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []
        self.day_zero = _DAY_ZERO

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sheet":
            self.sheets.append((attributes.get("name", ""), attributes.get("r:id", "")))
        elif tag == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.day_zero = _DAY_ZERO_1904

    def close(self, tag: str) -> None: ...

    def write(self, text: str) -> None: ...


class _Strings:
    """The table of texts that cells refer to by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._pieces: list[str] = []
        self._in_text = False
        self._in_reading_aid = False

    def open(self, tag: str, attributes: dict[str, str]) -> None:  # noqa: ARG002
        if tag == "rPh":
            self._in_reading_aid = True
        self._in_text = tag == "t" and not self._in_reading_aid

    def close(self, tag: str) -> None:
        self._in_text = False
        if tag == "rPh":
            self._in_reading_aid = False
        elif tag == "si":
            self.texts.append("".join(self._pieces))
            self._pieces = []

    def write(self, text: str) -> None:
        if self._in_text:
            self._pieces.append(text)


class _Styles:
    """What the cells' formats show: a number, a date, a time or both."""

    def __init__(self) -> None:
        self._codes: dict[int, str] = {}
        self._cell_formats: list[int] = []
        self._in_cell_formats = False

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "numFmt":
            self._codes[_number(attributes.get("numFmtId"))] = attributes.get("formatCode", "")
        elif tag == "cellXfs":
            self._in_cell_formats = True
        elif tag == "xf" and self._in_cell_formats:
            self._cell_formats.append(_number(attributes.get("numFmtId")))

    def close(self, tag: str) -> None:
        if tag == "cellXfs":
            self._in_cell_formats = False

    def write(self, text: str) -> None: ...

    def formats(self) -> list[str]:
        """Of each cell style: "d", "t", "dt" or "" for a plain number."""
        return [self._shows(number) for number in self._cell_formats]

    def _shows(self, number: int) -> str:
        if number in self._codes:
            code = _NOT_A_CODE.sub("", self._codes[number].lower().replace("general", ""))
            return ("d" if re.search("[yd]", code) else "") + ("t" if re.search("[hs]", code) else "")
        if number == _DATE_AND_TIME_FORMAT:
            return "dt"
        return "d" if number in _DATE_FORMATS else "t" if number in _TIME_FORMATS else ""


class _Sheet:
    """The rows of one sheet."""

    def __init__(self, strings: list[str], formats: list[str], day_zero: datetime, left_chars: int) -> None:
        self.lines: list[str] = []
        self.left_chars = left_chars
        self._strings = strings
        self._formats = formats
        self._day_zero = day_zero
        self._cells: list[str] = []
        self._column = 0
        self._type = ""
        self._style = 0
        self._value: list[str] = []
        self._in_value = False

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            self._cells, self._column = [], 0
        elif tag == "c":
            self._type = attributes.get("t", "n")
            self._style = _number(attributes.get("s"))
            self._column = _column_of(attributes.get("r", "")) or self._column + 1
            self._value = []
        elif tag in ("v", "t"):
            self._in_value = True
        elif tag == "rPh":
            self._type = ""

    def close(self, tag: str) -> None:
        if tag in ("v", "t"):
            self._in_value = False
        elif tag == "c":
            self._close_cell("".join(self._value))
        elif tag == "row" and self._cells:
            self.lines.append(" | ".join(self._cells) + "\n")

    def write(self, text: str) -> None:
        if self._in_value:
            self._value.append(text)

    def _close_cell(self, value: str) -> None:
        shown = self._shown(value)
        if not shown:
            return
        self.left_chars -= len(shown)
        if self.left_chars < 0:
            raise DocumentUnreadable(f"has sheets with more than {MAX_CHARS >> 20} million characters; split it first.")
        missing = self._column - 1 - len(self._cells)
        if 0 < missing <= _MAX_COLUMNS_KEPT_EMPTY:
            self._cells += [""] * missing
        self._cells.append(shown)

    def _shown(self, value: str) -> str:
        if self._type == "s":
            index = _number(value)
            value = self._strings[index] if 0 <= index < len(self._strings) else ""
        elif self._type == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif self._type == "n" and value:
            shows = self._formats[self._style] if 0 <= self._style < len(self._formats) else ""
            return _number_shown(value, shows, self._day_zero)
        return " ".join(value.split("\n")).strip()


def _number_shown(value: str, shows: str, day_zero: datetime) -> str:
    """Fifteen digits, as Excel keeps them; a date in ISO's form."""
    try:
        number = float(value)
    except ValueError:
        return value.strip()
    if not shows or not 0 <= number <= _LAST_DAY:
        return f"{number:.15g}"
    moment = day_zero + timedelta(seconds=round(number * 86_400))
    clock = moment.strftime("%H:%M:%S").removesuffix(":00")
    if shows == "t":
        return clock
    day = moment.date().isoformat()
    return f"{day} {clock}" if shows == "dt" and number % 1 else day


def _column_of(reference: str) -> int:
    """1 for A1, 27 for AA7; 0 if the cell does not say where it stands."""
    column = 0
    for letter in reference:
        if not "A" <= letter <= "Z":
            break
        column = column * 26 + ord(letter) - 64
    return column


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
