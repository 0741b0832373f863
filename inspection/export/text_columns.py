"""Convert byte columns to text, for the formats that hold text only.

    base64   as in Spark's JSON writer
    hex      lower case, two digits a byte
    utf8     decoded as Java decodes: U+FFFD in place of invalid UTF-8
    auto     UTF-8 text if valid, else base64; an additional column names which (as in `dump`)

Null stays null, empty stays empty.
"""

from binascii import b2a_base64

import pyarrow as pa

from kseg.segment.java.java_output import decode_utf8

UTF8, BASE64 = "utf8", "base64"


def as_text(values: pa.Array, mode: str) -> pa.Array:
    """Values of a column of bytes as strings. mode: one of the module's."""
    if mode in ("auto", UTF8):
        try:
            return values.cast(pa.string())  # fails on invalid UTF-8
        except pa.ArrowInvalid:
            pass
    if mode == BASE64:
        encoded = [
            None if value is None else b2a_base64(value, newline=False) for value in values.to_pylist()
        ]
        return pa.array(encoded, pa.binary()).cast(pa.string())
    how = {"auto": _auto, UTF8: decode_utf8, "hex": bytes.hex}[mode]
    return pa.array([None if value is None else how(value) for value in values.to_pylist()], pa.string())


def encodings(values: pa.Array) -> pa.Array:
    """Which encoding `auto` chose for each value, null for null."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        names = [None if value is None else _encoding(value) for value in values.to_pylist()]
        return pa.array(names, pa.string())
    return pa.array([UTF8 if is_valid else None for is_valid in values.is_valid().to_pylist()], pa.string())


def _auto(value: bytes) -> str:
    return value.decode() if _encoding(value) == UTF8 else _base64(value)


def _encoding(value: bytes) -> str:
    try:
        value.decode()
    except UnicodeDecodeError:
        return BASE64
    return UTF8


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode("ascii")
