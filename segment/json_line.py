"""Encode values as JSON, with an encoder that is created only once (a run can write millions of lines).

Besides what JSON requires, it escapes the characters that Unicode counts as line separators (U+0085, U+2028, U+2029), so that readers
that split at any of them, such as Python's `str.splitlines`, get whole lines. `segment.kernel.json_lines` does the same.
"""

import json
from collections.abc import Mapping

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


def json_line(values: Mapping[str, object]) -> bytes:
    """UTF-8 with a newline. Bytes of a file name that are not UTF-8 are escaped as lone surrogates."""
    try:
        return compact_json(values).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return _encode_ascii(values).encode("ascii") + b"\n"


def compact_json(value: object) -> str:
    """The text of a value, without spaces."""
    text = _encode(value)
    if text.isascii():
        return text
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
