"""Bytes to text, with what was assumed and what was lost on record.

In this order: a byte order mark, UTF-16 without its mark, UTF-8, the encoding a format declares for itself,
UTF-8 with a few broken bytes, a guess among the encodings that people still save text in. The rest is binary.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import charset_normalizer
from charset_normalizer import CharsetMatch

from pipeline.errors import DocumentUnreadable

_MARKS = (  # UTF-32 before UTF-16: the little-endian mark of one begins with that of the other
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LEGACY = (
    *("cp1252", "cp1251", "cp1253", "cp1255", "cp1256", "koi8_r"),
    *("gb18030", "big5", "cp932", "euc_jp", "cp949"),
)
_LEGACY_LATIN = ("cp1250", "cp1254")
"""Tried only where the first do not fit: short text looks as likely in them as in cp1252, a commoner one."""
_MAGIC = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"OggS", "an audio file"),
    (b"ID3", "an audio file"),
    (b"RIFF", "an audio, video or WebP file"),
    (b"GGUF", "a GGUF model"),
    (b"\x80\x04\x95", "a Python pickle"),
)
_SAMPLE_BYTES = 65536
_CONTROL = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
"""Without white space, NUL, which text files may hold, and what terminals leave: backspace and escape."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text and how its bytes were read, as `Source.encoding` records it."""

    text: str
    encoding: str


def decode_text(data: bytes, name: str, declared: str = "") -> Decoded:
    """Decode `data`; raise DocumentUnreadable, naming `name`, if it is not text.

    `declared` is what the document says of itself (an HTML meta tag); it is believed only where it fits.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_lossy(data[len(mark) :], encoding, note=" with byte order mark")
    kind = seems_binary(data)
    if kind:
        raise DocumentUnreadable(f"{name} is not text: it seems to be {kind}. Convert it to text first.")
    for encoding in (_unmarked_utf16(data), "utf-8", declared):
        text = _decode_strict(data, encoding)
        if text is not None:
            return Decoded(text, encoding)
    if _is_damaged_utf8(data):
        return _decode_lossy(data, "utf-8")
    guess = _guess(data)
    if guess is not None:
        return Decoded(str(guess), f"{guess.encoding} (guessed)")
    if len(_without_ascii(data)) < 0.05 * len(data):
        return _decode_lossy(data, "utf-8")
    raise DocumentUnreadable(f"{name} is not text in any encoding known here. Save it as UTF-8 first.")


def _guess(data: bytes) -> CharsetMatch | None:
    """The likeliest of the legacy encodings, or None if the text would look like noise in all of them."""
    likely = charset_normalizer.from_bytes(data, cp_isolation=list(_LEGACY)).best()
    latin = charset_normalizer.from_bytes(data, cp_isolation=list(_LEGACY_LATIN)).best()
    if likely is None or (latin is not None and latin.chaos < likely.chaos):
        return latin
    return likely


def seems_binary(data: bytes) -> str:
    """What kind of binary data this seems to be, or an empty string for text."""
    for magic, kind in _MAGIC:
        if data.startswith(magic) and (len(magic) > 3 or not data[:512].isascii() or b"\0" in data[:512]):
            return kind
    sample = data[:_SAMPLE_BYTES]
    if _unmarked_utf16(sample) or not sample:
        return ""
    noise = len(_CONTROL.findall(sample)) + max(0, sample.count(0) - len(sample) // 3)
    return "binary data" if noise > 0.1 * len(sample) else ""


def _decode_strict(data: bytes, encoding: str) -> str | None:
    """The text, or None if these bytes are not in this encoding."""
    try:
        return data.decode(encoding) if encoding else None
    except (UnicodeError, LookupError, ValueError):
        return None


def _decode_lossy(data: bytes, encoding: str, note: str = "") -> Decoded:
    """Decode, every invalid sequence becoming one U+FFFD, which is counted."""
    text = data.decode(encoding, errors="replace")
    replaced = text.count("\ufffd") - _count_genuine_replacements(data, encoding)
    lost = f" ({replaced} invalid byte sequence{'s' if replaced > 1 else ''} replaced)" if replaced else ""
    return Decoded(text, f"{encoding}{note}{lost}")


def _count_genuine_replacements(data: bytes, encoding: str) -> int:
    """U+FFFD that the bytes themselves spell."""
    return data.decode(encoding, errors="ignore").count("\ufffd")


def _unmarked_utf16(data: bytes) -> str:
    """The UTF-16 byte order of Western text without a mark: every other byte is NUL."""
    sample = data[: _SAMPLE_BYTES & ~1]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * half and odd < 0.05 * half else ""


def _is_damaged_utf8(data: bytes) -> bool:
    """True if nearly all bytes above ASCII are whole UTF-8 characters, or bytes that hardly any text has."""
    high = _without_ascii(data)
    whole = len(_without_ascii(data.decode("utf-8", errors="ignore").encode("utf-8")))
    damage = len(high) - len(high.translate(None, b"\xff\xfe\xc0\xc1"))
    return whole + damage >= 0.8 * len(high)


def _without_ascii(data: bytes) -> bytes:
    return data.translate(None, bytes(range(128)))
