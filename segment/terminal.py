"""Escape text from the evidence for a screen, or for a suggested command: names and records may contain anything.

What is escaped: control characters (C0 and C1), which a terminal would execute or not show, characters that reorder or
join text (Unicode's bidirectional and invisible format characters), and bytes that are not UTF-8.
"""

import re
import shlex

# parts of character sets; patterns are compiled on first use
CONTROL = "\x00-\x1f\x7f-\x9f"
FORMAT = "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_LONGEST, _KEPT = 250, 100  # characters
RAW = "\udc80-\udcff"  # bytes that are not UTF-8, as Python decodes them in file names


def visible(text: str) -> str:
    """The text on one line: invisible characters, and bytes that are not UTF-8, are escaped."""
    return re.sub(f"[{CONTROL}{FORMAT}{RAW}]", _escaped, text)


def shortened(text: str) -> str:
    """A value of any length for use in a sentence: a long one is reduced to its beginning and its length."""
    return text if len(text) <= _LONGEST else f"{text[:_KEPT]}... ({len(text):,} characters)"


def _escaped(match: re.Match[str]) -> str:
    if "\udc80" <= match[0] <= "\udcff":
        return f"\\x{ord(match[0]) - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode("ascii")


def for_terminal(data: bytes) -> bytes:
    """Lines for a terminal: everything except line feeds and tabs is escaped as by `visible`, in a form that keeps JSON valid."""
    text = data.decode("utf-8", "surrogateescape")
    return re.sub(f"(?![\n\t])[{CONTROL}{FORMAT}{RAW}]", _as_json, text).encode()


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def shown_path(path: str) -> str:
    """A path in a sentence: unchanged, or quoted for a shell ($'…') if it has invisible characters."""
    return shell_quoted(path) if re.search(f"[{CONTROL}{FORMAT}{RAW}]", path) else path


def shell_quoted(path: str) -> str:
    """A path as one word of a command; a leading dash is not taken for an option."""
    return shell_word(f"./{path}" if path.startswith("-") else path)


def shell_word(text: str) -> str:
    """Any text as one word of a command; invisible characters are escaped ($'…' of bash and zsh)."""
    if not re.search(f"[{CONTROL}{FORMAT}{RAW}]", text):
        return shlex.quote(text)
    return "$'" + re.sub(rf"[\\'{CONTROL}{FORMAT}{RAW}]", _as_bytes, text) + "'"


def _as_bytes(match: re.Match[str]) -> str:
    if match[0] in "\\'":
        return f"\\{match[0]}"
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode("utf-8", "surrogateescape"))
