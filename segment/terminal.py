"""Text from the evidence on a screen, or in a command to type: names and records may hold anything.

What a terminal would obey or would show as nothing (C0 and C1 controls), what turns the order of letters around or joins them
(Unicode's bidirectional and invisible format characters), and bytes that are no UTF-8 are written as escapes.
"""

import re
import shlex

# parts of character sets; no pattern is compiled before there is something to say
CONTROL = "\x00-\x1f\x7f-\x9f"
FORMAT = "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_LONGEST, _KEPT = 250, 100  # characters
RAW = "\udc80-\udcff"  # bytes that are no UTF-8, as names have them


def visible(text: str) -> str:
    """The text on one line: characters that are not to be seen, and bytes that are no UTF-8, as escapes."""
    return re.sub(f"[{CONTROL}{FORMAT}{RAW}]", _escaped, text)


def shortened(text: str) -> str:
    """A value that may be of any length, in a sentence: of a long one its beginning, and how long it is."""
    return text if len(text) <= _LONGEST else f"{text[:_KEPT]}... ({len(text):,} characters)"


def _escaped(match: re.Match[str]) -> str:
    if "\udc80" <= match[0] <= "\udcff":
        return f"\\x{ord(match[0]) - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode("ascii")


def for_terminal(data: bytes) -> bytes:
    """Lines as a terminal may have them: everything but line feeds and tabs as `visible` has it, in a form that leaves
    JSON what it is."""
    text = data.decode("utf-8", "surrogateescape")
    return re.sub(f"(?![\n\t])[{CONTROL}{FORMAT}{RAW}]", _as_json, text).encode()


def _as_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def shown_path(path: str) -> str:
    """A path in a sentence: as it is, or, where it has anything that cannot be seen, as a shell takes it back ($'…')."""
    return shell_quoted(path) if re.search(f"[{CONTROL}{FORMAT}{RAW}]", path) else path


def shell_quoted(path: str) -> str:
    """A path as one word of a command to type; a leading dash is not an option."""
    return shell_word(f"./{path}" if path.startswith("-") else path)


def shell_word(text: str) -> str:
    """Any text as one word of a command to type: what cannot be seen is spelt out ($'…' of bash and zsh)."""
    if not re.search(f"[{CONTROL}{FORMAT}{RAW}]", text):
        return shlex.quote(text)
    return "$'" + re.sub(rf"[\\'{CONTROL}{FORMAT}{RAW}]", _as_bytes, text) + "'"


def _as_bytes(match: re.Match[str]) -> str:
    if match[0] in "\\'":
        return f"\\{match[0]}"
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode("utf-8", "surrogateescape"))
