"""PDF to the text of its pages. Runs inside the limits of `extract_text`."""

from __future__ import annotations

import io
import logging

import pypdf
from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

from pipeline.errors import DocumentUnreadable


def extract(data: bytes) -> list[tuple[str, str]]:
    """Return a part for each page that has text, labelled with its number; say why if there is none."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not _opens_without_password(reader):
            raise DocumentUnreadable("is encrypted; save a copy without a password first.")
        pages = [page.extract_text() for page in reader.pages]
    except (FileNotDecryptedError, DependencyError):
        raise DocumentUnreadable("is encrypted; save a copy without a password first.") from None
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DocumentUnreadable(
            f"cannot be read as PDF ({type(error).__name__}: {str(error)[:120]}); convert it to text first."
        ) from error
    if not any(page.strip() for page in pages):
        raise DocumentUnreadable(
            f"has {len(pages)} pages but no text, probably only images; run text recognition (OCR) on it first."
        )
    return [(f"page {number}", page) for number, page in enumerate(pages, start=1) if page.strip()]


def _opens_without_password(reader: pypdf.PdfReader) -> bool:
    """Many files are encrypted only to forbid printing; those open with an empty password."""
    return bool(reader.decrypt(""))
