"""The few rules of Java's library that Kafka's text files and file names inherit.

Kafka reads its small text files with `BufferedReader.readLine`, `Integer.parseInt`, `Long.parseLong` and
`String.split`. Each of them differs a little from its Python counterpart (Python accepts underscores, blanks and unusual line
breaks, Java drops trailing empty fields), and a file that only one of them can read would get a wrong verdict. All
these differences are here.
"""

import re

from kseg.segment.errors import FormatError

_LINE_BREAK = re.compile("\r\n|\r|\n")
WHITESPACE = re.compile("[ \t\n\x0b\f\r]+")  # Java's \s, which is narrower than Python's

INT_BITS = 32
LONG_BITS = 64


def parse_integer(text: str, bits: int) -> int | None:
    """The number that Integer.parseInt (bits 32) or Long.parseLong (bits 64) reads, None where they throw.

    Only ASCII digits count; Java would also take other scripts' digits, which no Kafka has ever written.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > 19:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def split_fields(text: str, separator: re.Pattern[str] = WHITESPACE) -> list[str]:
    """Pattern.split: a leading empty field stays, trailing empty fields go; text without a separator is one field."""
    fields = separator.split(text)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


class NotUtf8(FormatError):
    """Bytes that are not UTF-8 (Java: MalformedInputException)."""


def read_lines(data: bytes) -> list[str]:
    """The lines that a BufferedReader over UTF-8 yields; no empty line after the last line break. Raises NotUtf8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotUtf8(f"line {line} is not UTF-8 (byte {error.start} of the file)") from error
    lines = _LINE_BREAK.split(text)
    if not lines[-1]:
        lines.pop()
    return lines
