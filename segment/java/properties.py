"""The text of java.util.Properties, both ways (the format of meta.properties).

    natural lines end in \\n, \\r or \\r\\n; leading blanks, tabs and form feeds are ignored
    a line that starts with # or ! is a comment; empty lines are ignored
    an odd number of backslashes at the end joins the next line to this one
    blanks, one = or :, or both separate key and value; a backslash escapes a character
    \\t \\n \\r \\f \\uXXXX (one UTF-16 unit) are escapes as usual, any other \\x stands for x
Bytes are Latin-1. The writer uses \\uXXXX for everything outside printable ASCII, so that Java reads the original text.
"""

import re
from collections.abc import Iterator, Mapping

from kseg.segment.errors import FormatError

_BLANKS = " \t\f"
_LINE_BREAK = re.compile("\r\n|\r|\n")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_FOUR_HEX_DIGITS = re.compile("[0-9A-Fa-f]{4}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {char: f"\\{name}" for name, char in _CONTROLS.items()} | {char: f"\\{char}" for char in "=:#!\\"}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def decode_properties(data: bytes) -> dict[str, str]:
    """Keys and values in file order; of duplicate keys the last one is kept. Raises FormatError for a malformed \\uXXXX."""
    pairs = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _PAIR.match(line)
        assert match is not None  # both parts may be empty
        pairs[_unescape(match[1])] = _unescape(match[2])
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    is_joined = False
    for natural in _LINE_BREAK.split(text):
        line = natural.lstrip(_BLANKS)
        if not is_joined and line.startswith(("#", "!")):
            continue
        is_joined = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if is_joined else line)
        if not is_joined:
            logical = "".join(parts)
            parts.clear()
            if logical:
                yield logical
    if any(parts):
        yield "".join(parts)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(_meaning, text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _meaning(match: re.Match[str]) -> str:
    escaped = match[1]
    if not escaped.startswith("u"):
        return _CONTROLS.get(escaped, escaped)
    if not _FOUR_HEX_DIGITS.fullmatch(escaped[1:]):
        raise FormatError(f"{match[0]!r} is not \\u and four hexadecimal digits")
    return chr(int(escaped[1:], 16))


def encode_properties(pairs: Mapping[str, str], written_at_ms: int) -> bytes:
    """The file that Properties.store writes with an empty comment. written_at_ms: printed (in UTC) in its second
    line. Raises FormatError if that time has no calendar date."""
    try:
        from datetime import UTC, datetime

        moment = datetime.fromtimestamp(written_at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise FormatError(f"{written_at_ms} ms is not a valid date") from error
    # Java's Date.toString, whose names are English in every locale
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    lines = ["#", f"#{day} {month} {moment.day:02d} {moment:%H:%M:%S} UTC {moment.year}"]
    lines += [f"{_escape(key, every_blank=True)}={_escape(value)}" for key, value in pairs.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _escape(text: str, every_blank: bool = False) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2)]
    escaped = []
    for index, char in enumerate(characters):
        if char == " " and (every_blank or index == 0):
            escaped.append("\\ ")
        elif char in _ESCAPED:
            escaped.append(_ESCAPED[char])
        else:
            escaped.append(char if " " <= char <= "~" else f"\\u{ord(char):04X}")
    return "".join(escaped)
