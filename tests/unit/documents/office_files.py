"""Word, PowerPoint and Excel files, written by hand: as small as the formats allow."""

from __future__ import annotations

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def pack(parts: dict[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ({"[Content_Types].xml": "<Types/>"} | parts).items():
            archive.writestr(name, content)
    return file.getvalue()


def relations(*targets: tuple[str, str, str]) -> str:
    """Of (id, kind, target)."""
    lines = "".join(f'<Relationship Id="{i}" Type="{RELATIONS}/{k}" Target="{t}"/>' for i, k, t in targets)
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{lines}</Relationships>'
    )


def root(main: str) -> dict[str, str | bytes]:
    return {"_rels/.rels": relations(("rId1", "officeDocument", main))}


def word_file(body: str, **parts: str) -> bytes:
    """`parts` are further ones beside document.xml: styles, footnotes."""
    kinds = [(name, name, f"{name}.xml") for name in parts]
    return pack(
        root("word/document.xml")
        | {"word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'}
        | {"word/_rels/document.xml.rels": relations(*kinds)}
        | {f"word/{name}.xml": f'<w:{name} xmlns:w="{WORD}">{xml}</w:{name}>' for name, xml in parts.items()}
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def slide_file(*slides: str, notes: str = "") -> bytes:
    """Slides in reverse order of their names: the presentation's list counts."""
    names = [f"slides/slide{len(slides) - n}.xml" for n in range(len(slides))]
    listed = "".join(f'<p:sldId r:id="s{n}" id="{300 - n}"/>' for n in range(len(slides)))
    parts = root("/ppt/presentation.xml") | {
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{SLIDES}" xmlns:r="{RELATIONS}">'
        f"<p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(*((f"s{n}", "slide", name) for n, name in enumerate(names))),
    }
    for name, xml in zip(names, slides, strict=True):
        parts[f"ppt/{name}"] = f'<p:sld xmlns:p="{SLIDES}" xmlns:a="{DRAWING}">{xml}</p:sld>'
    if notes:
        parts[f"ppt/slides/_rels/{names[0][7:]}.rels"] = relations(("n", "notesSlide", "../notesSlides/n.xml"))
        parts["ppt/notesSlides/n.xml"] = f'<p:notes xmlns:p="{SLIDES}" xmlns:a="{DRAWING}">{notes}</p:notes>'
    return pack(parts)


def shape(*lines: str, kind: str = "body") -> str:
    text = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)
    return f'<p:sp><p:nvPr><p:ph type="{kind}"/></p:nvPr><p:txBody>{text}</p:txBody></p:sp>'


def sheet_file(sheets: dict[str, str], strings: str = "", styles: str = "", properties: str = "") -> bytes:
    """`sheets`: name → rows in XML."""
    listed = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="s{n}"/>' for n, name in enumerate(sheets))
    kinds = [(f"s{n}", "worksheet", f"worksheets/{n}.xml") for n in range(len(sheets))]
    kinds += [("a", "sharedStrings", "sharedStrings.xml"), ("b", "styles", "styles.xml")]
    parts = root("xl/workbook.xml") | {
        "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" xmlns:r="{RELATIONS}">{properties}'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": relations(*kinds),
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEETS}">{strings}</sst>',
        "xl/styles.xml": f'<styleSheet xmlns="{SHEETS}">{styles}</styleSheet>',
    }
    for n, rows in enumerate(sheets.values()):
        parts[f"xl/worksheets/{n}.xml"] = f'<worksheet xmlns="{SHEETS}"><sheetData>{rows}</sheetData></worksheet>'
    return pack(parts)
