"""Entries that replace damaged bytes in a 0.7 file with the same length, so that no later offset changes.

30 bytes and more   a compressed set without messages. Its payload is a complete, empty gzip stream (20 bytes); the
                    rest of the length goes into the comment of the stream. Consumers skip it
                    (0.7: ByteBufferMessageSet continues when a set has no message).
                    Large ranges get several, so that each fits into the fetch size of any consumer.
9 to 29 bytes       an uncompressed message, since a gzip stream is longer. Consumers receive its payload: zeros.
fewer               impossible: the smallest entry has 9 bytes.
"""

from kseg.segment import layout as L
from kseg.segment.kafka07.encoding07 import encode_message
from kseg.segment.kafka07.messages07 import HEADER_BYTES

MIN_BYTES = HEADER_BYTES[0]
_GZIP_START = b"\x1f\x8b\x08%c\x00\x00\x00\x00\x00\xff"
# the end of an empty deflate stream, then checksum and size of the empty payload
_GZIP_OF_NOTHING = b"\x03\x00" + b"\x00" * 8
_COMMENTED = 0x10
_MIN_SET_BYTES = HEADER_BYTES[1] + len(_GZIP_START) - 1 + len(_GZIP_OF_NOTHING)
_SET_BYTES = 64 * 1024
_COMMENT = b"kseg put this in the place of damaged bytes. "


def is_skipped_by_consumers(length: int) -> bool:
    """Whether consumers receive nothing for a filler of this size."""
    return length >= _MIN_SET_BYTES


def filler(length: int) -> bytes:
    """Entries of exactly `length` bytes in all, which must not be fewer than LEAST_BYTES."""
    if length < _MIN_SET_BYTES:
        magic = 1 if length >= HEADER_BYTES[1] else 0
        return encode_message(bytes(length - HEADER_BYTES[magic]), magic)
    whole = max(0, (length - _MIN_SET_BYTES) // _SET_BYTES)
    rest = length - whole * _SET_BYTES
    return _empty_set(_SET_BYTES) * whole + _empty_set(rest)


def _empty_set(length: int) -> bytes:
    room = length - _MIN_SET_BYTES
    if not room:
        return encode_message(_GZIP_START % 0 + _GZIP_OF_NOTHING, 1, L.GZIP)
    text = (_COMMENT * (room // len(_COMMENT) + 1))[: room - 1]
    return encode_message(_GZIP_START % _COMMENTED + text + b"\x00" + _GZIP_OF_NOTHING, 1, L.GZIP)
