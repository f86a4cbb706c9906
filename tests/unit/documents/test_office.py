"""Word, PowerPoint and Excel: what a reader sees is read, and what is built to exhaust a reader is refused."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from pipeline.documents.load import load_bytes
from pipeline.documents.office import package, sheets
from pipeline.documents.office import text as office_text
from pipeline.errors import DocumentUnreadable
from tests.unit.documents.office_files import pack, paragraph, relations, root, shape, sheet_file, slide_file, word_file

STYLES = (
    '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:styleId="Aufz"><w:name w:val="List Bullet"/></w:style>'
)


def read(data: bytes) -> str:
    [(_, text)] = office_text.extract(data)
    return text


def test_a_word_file_is_read_in_a_process_of_its_own() -> None:
    document = load_bytes(word_file(paragraph("Größe 世界 \U0001f600")), "a.docx")
    assert document.text == "Größe 世界 \U0001f600\n"
    assert [(source.name, source.encoding) for source in document.sources] == [("a.docx", "Office")]


def test_headings_lists_and_tables_keep_their_shape() -> None:
    numbered = "<w:numPr/>"
    cell = "<w:tc>{}</w:tc>"
    row = "<w:tr>{}{}</w:tr>"
    table = row.format(cell.format(paragraph("A")), cell.format(paragraph("B") + paragraph("b")))
    inner = f"<w:tbl>{row.format(cell.format(paragraph('x')), cell.format(paragraph('y')))}</w:tbl>"
    table += row.format(cell.format(paragraph("1")), cell.format(inner))
    data = word_file(
        paragraph("Ports", '<w:pStyle w:val="berschrift2"/>')
        + paragraph("one", numbered)
        + paragraph("two", '<w:pStyle w:val="Aufz"/>')
        + f"<w:tbl>{table}</w:tbl>"
        + paragraph("after"),
        styles=STYLES,
    )
    assert read(data) == "## Ports\n\n- one\n- two\n\nA | B b\n1 | x | y\n\nafter\n"


def test_what_a_reader_does_not_see_is_left_out() -> None:
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>"
    mark = "<w:rPr><w:vanish/></w:rPr>"
    body = (
        f"<w:p><w:r><w:t>seen </w:t></w:r>{hidden}<w:r><w:t>too</w:t></w:r></w:p>"
        + paragraph("only the mark is hidden", mark)
        + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
        + "<w:p><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
        + '<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>'
    )
    assert read(word_file(body)) == "seen too\n\nonly the mark is hidden\n\na\tb\n"


def test_a_text_box_is_read_once() -> None:
    box = f"<w:txbxContent>{paragraph('box')}</w:txbxContent>"
    body = (
        "<w:p><w:r><w:t>before</w:t></w:r><w:r><w:AlternateContent>"
        f"<w:Choice>{box}</w:Choice><w:Fallback>{box}</w:Fallback></w:AlternateContent></w:r>"
        "<w:r><w:t> after</w:t></w:r></w:p>"
    )
    assert read(word_file(body)) == "box\n\nbefore after\n"


def test_footnotes_stand_at_the_end_where_their_marks_point() -> None:
    body = '<w:p><w:r><w:t>Claim</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
    notes = f'<w:footnote w:id="2">{paragraph("Proof")}</w:footnote>'
    assert read(word_file(body, footnotes=notes)) == "Claim[^footnote 2]\n\n[^footnote 2] Proof\n"


def test_slides_come_in_the_order_of_the_show_with_their_notes() -> None:
    table = "<a:tbl><a:tr><a:tc><a:p><a:r><a:t>h</a:t></a:r></a:p></a:tc><a:tc/></a:tr></a:tbl>"
    number = '<a:p><a:fld type="slidenum"><a:t>1</a:t></a:fld></a:p>'
    data = slide_file(shape("First", kind="title") + shape("x", "y"), table, notes=shape("say") + number)
    assert office_text.extract(data) == [
        ("slide 1", "# First\n\nx\n\ny\n\nNotes:\n\nsay\n"),
        ("slide 2", "h | \n"),
    ]
    assert [source.name for source in load_bytes(data, "s.pptx").sources] == ["s.pptx, slide 1", "s.pptx, slide 2"]


def test_cells_show_what_excel_shows() -> None:
    strings = "<si><t>name</t></si><si><r><t>two </t></r><r><t>runs</t></r><rPh><t>aid</t></rPh></si>"
    styles = (
        '<numFmts><numFmt numFmtId="170" formatCode="yyyy&quot;s&quot;"/>'
        '<numFmt numFmtId="171" formatCode="0.0&quot;days&quot;"/></numFmts><cellXfs>'
        + "".join(f'<xf numFmtId="{n}"/>' for n in (0, 14, 22, 20, 170, 171))
        + "</cellXfs>"
    )
    row = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c><c r="D1"><v>0.30000000000000004</v></c>'
        '<c r="E1" t="b"><v>1</v></c><c r="F1" t="inlineStr"><is><t>in\nline</t></is></c>'
        '<c r="G1" t="e"><v>#REF!</v></c></row>'
        '<row><c s="1"><v>45351</v></c><c s="2"><v>45351.5</v></c><c s="3"><v>0.395833333333</v></c>'
        '<c s="4"><v>45351</v></c><c s="5"><v>2</v></c><c t="str"><f>A1</f><v>formula</v></c></row>'
        '<row><c r="A3"/></row><row><c r="XFD4"><v>1</v></c></row>'
    )
    data = sheet_file({"Sales &amp; co": row, "Empty": ""}, strings, styles)
    assert office_text.extract(data) == [
        (
            "sheet Sales & co",
            "name |  | two runs | 0.3 | TRUE | in line | #REF!\n"
            "2024-02-29 | 2024-02-29 12:00 | 09:30 | 2024-02-29 | 2 | formula\n1\n",
        )
    ]


def test_a_workbook_of_a_macintosh_counts_days_from_1904() -> None:
    styles = '<cellXfs><xf numFmtId="14"/></cellXfs>'
    data = sheet_file({"a": "<row><c><v>0</v></c></row>"}, styles=styles, properties='<workbookPr date1904="1"/>')
    assert read(data) == "1904-01-01\n"


@pytest.mark.parametrize("value", ["1e308", "-5", "nan", "inf", "x", "99999999999"])
def test_a_date_that_is_none_is_shown_as_it_is(value: str) -> None:
    styles = '<cellXfs><xf numFmtId="22"/></cellXfs>'
    assert read(sheet_file({"a": f"<row><c><v>{value}</v></c></row>"}, styles=styles)).strip()


# --- hostile and broken ----------------------------------------------------------------------------------------------

LAUGHS = '<!DOCTYPE w [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w:document xmlns:w="x">&b;</w:document>'
OUTSIDE = '<!DOCTYPE w SYSTEM "file:///etc/passwd"><document/>'


@pytest.mark.parametrize("xml", [LAUGHS, OUTSIDE])
def test_a_document_type_is_refused(xml: str) -> None:
    with pytest.raises(DocumentUnreadable, match=r"a\.docx holds an XML document type"):
        load_bytes(pack(root("word/document.xml") | {"word/document.xml": xml}), "a.docx")


def test_a_bomb_is_refused_by_what_its_directory_declares() -> None:
    with pytest.raises(DocumentUnreadable, match="zip bomb"):
        load_bytes(word_file(paragraph(" " * (8 << 20))), "bomb.docx")


def test_a_bomb_that_lies_about_its_size_is_stopped_while_it_is_unpacked() -> None:
    data = bytearray(word_file(paragraph(" " * (8 << 20))))
    true_size = next(
        entry.file_size for entry in zipfile.ZipFile(BytesIO(data)).infolist() if entry.filename == "word/document.xml"
    )
    told = true_size.to_bytes(4, "little")
    assert data.count(told) == 2, "in the part's own header and in the directory"
    with pytest.raises(DocumentUnreadable, match=r"zip bomb|damaged|not XML"):
        office_text.extract(bytes(data.replace(told, (1000).to_bytes(4, "little"))))


def test_limits_hold_while_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sheet_file({"a": "<row><c><v>1</v></c></row>" * 1000, "b": "<row><c><v>1</v></c></row>" * 1000})
    assert office_text.extract(data)
    monkeypatch.setattr(package, "PART_BYTES", 20_000)
    with pytest.raises(DocumentUnreadable, match="zip bomb"):
        office_text.extract(data)
    monkeypatch.undo()
    monkeypatch.setattr(package, "TOTAL_BYTES", 40_000)
    with pytest.raises(DocumentUnreadable, match="zip bomb"):
        office_text.extract(data)
    monkeypatch.undo()
    monkeypatch.setattr(package, "MAX_PARTS", 3)
    with pytest.raises(DocumentUnreadable, match="zip bomb"):
        office_text.extract(data)


def test_one_text_shown_in_a_million_cells_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "MAX_CHARS", 1 << 20)
    data = sheet_file({"a": '<row><c t="s"><v>0</v></c></row>' * 2000}, f"<si><t>{'x' * 1000}</t></si>")
    with pytest.raises(DocumentUnreadable, match="split it"):
        office_text.extract(data)


def test_xml_nested_without_end_is_refused() -> None:
    with pytest.raises(DocumentUnreadable, match="deeper"):
        office_text.extract(word_file("<w:x>" * 10_000 + "</w:x>" * 10_000))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pack({"a.txt": "x"}), "no Word, PowerPoint or Excel"),
        (word_file(""), "no text"),
        (pack(root("word/document.xml") | {"word/document.xml": "<open>"}), "not XML"),
        (pack(root("../../etc/passwd")), "no Word, PowerPoint or Excel"),
        (pack({"_rels/.rels": relations(("a", "officeDocument", "http://127.0.0.1/x"))}), "no Word"),
        (word_file(paragraph("x"))[:-30], "damaged"),
    ],
)
def test_a_broken_file_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(DocumentUnreadable, match=message):
        load_bytes(data, "a.docx")
