"""Read JSON payloads strictly, and convert decoded values for a JSON line.

Python's own reader accepts NaN and Infinity, as many levels as its stack allows, and half of a surrogate pair, which no UTF-8 text can
contain; each would make writing the value fail. Values of other decoders become JSON: bytes as base64, decimals and non-finite numbers as
text.
"""

import json
import math
import re
from base64 import b64encode
from decimal import Decimal
from typing import Any

from kseg.segment.errors import FormatError

MAX_DEPTH = 100
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(data: bytes) -> Any:
    """Parse all of `data` as one JSON value. Raises FormatError."""
    try:
        value = _decoder.decode(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise FormatError("it is not UTF-8 text") from None
    except RecursionError:
        raise FormatError("it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"it is not JSON: {error}") from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise FormatError(f"it is nested more than {MAX_DEPTH} levels deep")
    if _SURROGATE.search(data):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise FormatError("a string has an unpaired surrogate") from None
    return value


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = inner
    return depth


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is out of the range of a double")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_float)


def plain_json(value: Any) -> Any:
    """A decoded value in JSON types."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is dict:
        return {
            name if type(name) is str else str(name): each if type(each) is str else plain_json(each)
            for name, each in value.items()
        }
    if kind is list:
        return [plain_json(each) for each in value]
    if kind is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind is bytes:
        return b64encode(value).decode("ascii")
    return format(value, "f") if kind is Decimal else value
