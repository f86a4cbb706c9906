"""Loading: what people and hostile files bring, none of it losing a character in silence."""

import io
import json
import zlib
from pathlib import Path

import pypdf
import pytest

from pipeline.documents import sandbox
from pipeline.documents.load import load_bytes, load_documents
from pipeline.documents.sample import bundled_document
from pipeline.errors import DocumentUnreadable, EmptyDocument


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def make_pdf(*page_texts: str) -> bytes:
    """A PDF written by hand: one line of Helvetica per page."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(page_texts)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(page_texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(page_texts):
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    return write_pdf_objects([item.encode() for item in objects])


def write_pdf_objects(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, item in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"plain\r\ntext\n", "plain\r\ntext\n", "utf-8"),
        ("没有空格的中文。".encode(), "没有空格的中文。", "utf-8"),
        ("\ufeffmarked".encode(), "marked", "utf-8 with byte order mark"),
        ("中文 text".encode("utf-16"), "中文 text", "utf-16-le with byte order mark"),
        ("text".encode("utf-32"), "text", "utf-32-le with byte order mark"),
        ("unmarked text".encode("utf-16-be"), "unmarked text", "utf-16-be"),
        (b"nul\0bytes\0\0kept", "nul\0bytes\0\0kept", "utf-8"),
        (b"broken \xff byte", "broken \ufffd byte", "utf-8 (1 invalid byte sequence replaced)"),
        ("é".encode() * 50 + b"\xe2 \xc3", "é" * 50 + "\ufffd \ufffd", "utf-8 (2 invalid byte sequences replaced)"),
        ("\ufffd genuine é".encode() + b"\xff", "\ufffd genuine é\ufffd", "utf-8 (1 invalid byte sequence replaced)"),
        ("Où êtes-vous né ? Ça va, garçon.".encode("cp1252"), "Où êtes-vous né ? Ça va, garçon.", "cp1252 (guessed)"),
        ("Привет, как дела? Это текст.".encode("cp1251"), "Привет, как дела? Это текст.", "cp1251 (guessed)"),
        ("中文文档没有空格，这是第二句话。".encode("gb18030"), "中文文档没有空格，这是第二句话。", "gb18030 (guessed)"),
    ],
)  # fmt: skip
def test_bytes_become_text_and_the_encoding_is_recorded(data: bytes, text: str, encoding: str) -> None:
    document = load_bytes(data, "file.txt")
    assert document.text == text
    assert document.sources[0].encoding == encoding


def test_lone_surrogates_in_utf16_are_replaced_and_counted() -> None:
    document = load_bytes("\ufeffa\ud800b".encode("utf-16-le", "surrogatepass"), "file.txt")
    assert "\ufffd" in document.text
    assert "1 invalid byte sequence replaced" in document.sources[0].encoding


@pytest.mark.parametrize(
    ("data", "seems"),
    [
        (b"\x7fELF\x02\x01\x01\0\0", "a program"),
        (b"PK\x03\x04\x14\0\0\0", "a ZIP archive or an Office document"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (bytes(range(1, 32)) * 20, "binary data"),
        (b"\0" * 500, "binary data"),
    ],
)
def test_binary_data_is_refused_with_what_it_seems_to_be(tmp_path: Path, data: bytes, seems: str) -> None:
    with pytest.raises(DocumentUnreadable, match=seems):
        load_documents([write(tmp_path, "x.txt", data)])


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", "\ufeff".encode()])
def test_a_document_without_text_is_called_empty(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EmptyDocument, match=r"empty\.txt"):
        load_documents([write(tmp_path, "empty.txt", data)])


def test_a_single_line_of_ten_megabytes_loads_whole(tmp_path: Path) -> None:
    line = "wörd " * 1_800_000
    assert load_documents([write(tmp_path, "line.txt", line)]).text == line


@pytest.mark.parametrize("name", ["missing.txt", "nul\0name", "/dev/zero"])
def test_a_path_that_is_no_file_is_named_in_the_error(name: str) -> None:
    with pytest.raises(DocumentUnreadable):
        load_documents([name])


def test_html_becomes_the_lines_a_reader_sees() -> None:
    html = """<!doctype html><html><head><title>The
      page</title><style>p{}</style><script>var hidden = "code";</script></head><body>
      <h2>A <i>heading</i></h2><p>One  two<br>three &amp; four<p>Next<!-- a comment -->
      <ul><li>first<li>second</ul><div hidden>unseen</div><p style="display:none">unseen</p>
      <table><tr><th>Name<th>Age<tr><td>Ann<td><p>42</p><tr><td><td>none</table>
      <pre>  kept
    as is</pre></body>"""
    assert load_bytes(html.encode(), "page.html").text == (
        "The page\n\n## A heading\n\nOne two\nthree & four\n\nNext\n\n- first\n- second\n\n"
        "Name | Age\nAnn | 42\n | none\n\n  kept\n    as is\n"
    )


def test_html_is_read_in_the_encoding_it_declares() -> None:
    html = '<html><meta charset="koi8-r"><body><p>Привет</p></body></html>'.encode("koi8-r")
    document = load_bytes(html, "a.htm")
    assert document.text == "Привет\n"
    assert document.sources[0].encoding == "koi8-r, HTML"


def test_html_nested_deeper_than_python_recurses_is_read() -> None:
    assert load_bytes(b"<div>" * 5_000 + b"deep", "deep.html").text == "deep\n"


def test_json_keeps_its_text_and_meaning() -> None:
    short = '{"a": [1.0e5, "x"]}\n'
    assert load_bytes(short.encode(), "a.json").text == short
    records = {"rows": [{"id": i, "text": 'with "quotes", [brackets] and \\ 中文 😀 \x00'} for i in range(99)]}
    document = load_bytes(json.dumps(records).encode(), "b.json")
    assert json.loads(document.text) == records
    assert document.text.count("\n") > 99
    assert "中文 😀" in document.text
    lines = "".join(json.dumps({"id": i, "text": "x" * 3000}) + "\n" for i in range(3))
    assert load_bytes(lines.encode(), "c.jsonl").text == lines


@pytest.mark.parametrize("text", ['["\\ud800", "\\u0000"]' + " " * 3000, '"' + "\\" * 5000, "[" * 5000, "]," * 5000])
def test_broken_json_loses_nothing_but_white_space(text: str) -> None:
    assert "".join(load_bytes(text.encode(), "a.json").text.split()) == "".join(text.split())


def test_pdf_pages_are_places() -> None:
    document = load_bytes(make_pdf("First page.", "", "Third page."), "report.pdf")
    assert document.text == "First page.\n\nThird page."
    assert document.place(document.text.index("Third")) == ("report.pdf, page 3", 1)


def test_a_pdf_of_images_only_says_so() -> None:
    with pytest.raises(DocumentUnreadable, match=r"scan.pdf has 2 pages but no text"):
        load_bytes(make_pdf("", ""), "scan.pdf")


def test_an_encrypted_pdf_says_so() -> None:
    writer = pypdf.PdfWriter(io.BytesIO(make_pdf("Secret.")))
    writer.encrypt("password", algorithm="RC4-128")
    stream = io.BytesIO()
    writer.write(stream)
    with pytest.raises(DocumentUnreadable, match=r"is encrypted"):
        load_bytes(stream.getvalue(), "secret.pdf")


def test_a_broken_pdf_says_so() -> None:
    with pytest.raises(DocumentUnreadable, match=r"cannot be read as PDF"):
        load_bytes(b"%PDF-1.7 and then nothing", "broken.pdf")


def test_a_pdf_bomb_ends_at_the_limit() -> None:
    """A page whose content inflates a thousandfold, four times over."""
    bomb = zlib.compress(zlib.compress(zlib.compress(b"(A) Tj " * 12_000_000, 9), 9), 9)
    filters = b"/Filter [/FlateDecode /FlateDecode /FlateDecode]"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    stream = b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(bomb), filters, bomb)
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    with pytest.raises(DocumentUnreadable, match=r"bomb.pdf"):
        load_bytes(write_pdf_objects([b"<< /Type /Catalog /Pages 2 0 R >>", pages, page, stream]), "bomb.pdf")


def test_a_parser_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "DEADLINE_S", 0.01)
    with pytest.raises(DocumentUnreadable, match=r"slow.html was not read"):
        load_bytes(b"<html>text", "slow.html")


def test_a_directory_is_read_in_order_and_what_is_skipped_is_named(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "second")
    write(tmp_path, "a/z.md", "first")
    write(tmp_path, "a/.hidden", "never")
    write(tmp_path, "image.png", b"\x89PNG\r\n\x1a\n\0\0")
    write(tmp_path, "void.txt", "")
    (tmp_path / "loop").symlink_to(tmp_path)
    warnings: list[str] = []
    document = load_documents([tmp_path], warn=warnings.append)
    assert document.text == "first\n\nsecond"
    assert [Path(source.name).name for source in document.sources] == ["z.md", "b.txt"]
    assert len(warnings) == 1
    for skipped in ("a/.hidden (hidden)", "image.png (a PNG image)", "void.txt (empty)", "loop (a link or device)"):
        assert skipped in warnings[0]


def test_a_directory_without_text_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(EmptyDocument):
        load_documents([tmp_path])


def test_files_and_stdin_follow_one_another(tmp_path: Path) -> None:
    document = load_documents([write(tmp_path, "a.txt", "from a file"), "-"], io.BytesIO(b"from stdin"))
    assert document.text == "from a file\n\nfrom stdin"
    assert document.place(13)[0] == "standard input"


def test_stdin_can_be_named_once_only() -> None:
    with pytest.raises(DocumentUnreadable, match="Standard input"):
        load_documents(["-", "-"], io.BytesIO(b"text"))


def test_the_bundled_document_has_a_source_for_each_topic() -> None:
    document = bundled_document()
    assert len(document.text) > 300_000
    source = next(source for source in document.sources if source.name == "python-reference/integers")
    assert document.slice(source.span).startswith("integers\n========\n")
    part = bundled_document(max_chars=100_000)
    assert document.text.startswith(part.text)
    assert 60_000 < len(part.text) <= 100_000
