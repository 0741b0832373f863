"""The few rules of Java's library that apply to Kafka's text files and file names.

Kafka reads its small text files with `BufferedReader.readLine`, `Integer.parseInt`, `Long.parseLong` and `String.split`. Each differs
slightly from its Python counterpart (Python accepts underscores, blanks and unusual line breaks, Java drops trailing empty fields), and a
file that only one of the two accepts would get a wrong verdict. This module handles all of these differences.
"""

import re

from kseg.segment.errors import FormatError

_LINE_BREAK = re.compile("\r\n|\r|\n")
WHITESPACE = re.compile("[ \t\n\x0b\f\r]+")  # Java's \s, which is narrower than Python's

INT_BITS = 32
LONG_BITS = 64
_DIGITS_OF_ANY_INT = 9
_MOST_DIGITS = 255  # the longest file name: a number in it may have leading zeros, in any script


def parse_integer(text: str, bits: int) -> int | None:
    """The number that Integer.parseInt (bits 32) or Long.parseLong (bits 64) reads, None where they throw.

    Digits of all scripts count, as in Java, except those above U+FFFF, which are two characters in Java.
    """
    if len(text) <= _DIGITS_OF_ANY_INT and text.isascii() and text.isdecimal():
        return int(text)  # nearly every number of a checkpoint
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or not (digits.isascii() or max(digits) <= "\uffff"):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def split_fields(text: str, separator: re.Pattern[str] = WHITESPACE) -> list[str]:
    """Pattern.split: keeps a leading empty field, drops trailing empty fields; text without a separator is one field."""
    fields = separator.split(text)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


class NotUtf8(FormatError):
    """Bytes that are not UTF-8 (Java: MalformedInputException)."""


def read_lines(data: bytes) -> list[str]:
    """The lines that a BufferedReader returns for UTF-8; no empty line after the last line break. Raises NotUtf8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotUtf8(f"line {line} is not UTF-8 (byte {error.start} of the file)") from error
    lines = _LINE_BREAK.split(text)
    if not lines[-1]:
        lines.pop()
    return lines
