"""Text the way a Java program decodes and prints it: lenient UTF-8 and Jackson's compact JSON.

The output of Kafka's own dump tool depends on two rules of Java that differ from Python's in corner cases:

1. `new String(bytes, UTF_8)` replaces a malformed part by one U+FFFD. Java and Python agree on the extent of a part
   (the longest prefix of a valid sequence), except for encoded surrogates `ED A0..BF xx`: Java treats the two or
   three bytes as one part, Python as two or three.
2. Jackson escapes control characters with upper-case hex digits (`\\u001F`), Python with lower-case ones. Neither
   escapes `/`, DEL or anything beyond ASCII.
"""

import codecs
import re

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTROL_ESCAPE = re.compile(r"\\(\\|u00[01][0-9a-f])")
_ERRORS = "kseg-java"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        end = start + 2
        if end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    return _REPLACEMENT, end


codecs.register_error(_ERRORS, _replace_as_java)


def decode_utf8(data: bytes | bytearray | memoryview) -> str:
    """Decode `data` as Java decodes UTF-8; never fails (source: java.lang.String, observed with Java 17)."""
    return codecs.decode(bytes(data), "utf-8", _ERRORS)


def json_text(value: object) -> str:
    """`value` as Jackson's `JsonNode.toString` prints it: compact, members in their order, Jackson's escapes.

    value: dicts with text keys, lists, text, bool, int and None. No floats, which Java prints differently.
    """
    import json  # imported here: most dumps do not need it

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _CONTROL_ESCAPE.sub(lambda match: "\\" + _upper_hex(match[1]), text)


def _upper_hex(escape: str) -> str:
    return escape if escape == "\\" else "u" + escape[1:].upper()
