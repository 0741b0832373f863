"""Encode a value as one JSON line, with an encoder that is created once (a run can write millions of lines)."""

import json
from collections.abc import Mapping

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


def json_line(values: Mapping[str, object]) -> bytes:
    """UTF-8 with a newline. A file name that is no UTF-8 has its odd bytes as escaped lone surrogates."""
    try:
        return _encode(values).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return _encode_ascii(values).encode("ascii") + b"\n"
