"""Writes messages of Kafka 0.7; `messages07` has their layout."""

import struct
from typing import TYPE_CHECKING

from kseg.segment import layout as L
from kseg.segment.crc import crc32
from kseg.segment.errors import UsageError
from kseg.segment.kafka07.messages07 import HEADER_BYTES, KNOWN_CODECS, SIZE_FIELD

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PREFIX = {0: struct.Struct(">iBI"), 1: struct.Struct(">iBBI")}


def encode_message(payload: "Buffer", magic: int = 1, codec: int = L.NONE) -> bytes:
    """An entry with the payload unchanged (which must be compressed already if `codec` is not 0)."""
    if magic not in HEADER_BYTES or codec not in KNOWN_CODECS or (magic == 0 and codec != L.NONE):
        raise UsageError(f"Kafka 0.7 does not support magic {magic} with codec {codec}")
    data = bytes(payload)
    size = HEADER_BYTES[magic] - SIZE_FIELD + len(data)
    if size > L.INT32_MAX:
        raise UsageError(f"a message of {len(data)} bytes does not fit into an entry")
    if magic == 0:
        return _PREFIX[0].pack(size, 0, crc32(data)) + data
    return _PREFIX[1].pack(size, 1, codec, crc32(data)) + data
