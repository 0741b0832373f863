"""Entries that take the place of damaged bytes in a 0.7 file, byte for byte, so that nothing behind them moves.

30 bytes and more   a compressed set that holds no message. Its payload is a whole gzip stream of nothing (20 bytes);
                    what is too much of room goes into the stream's comment. A consumer passes over it without
                    being given anything (0.7: ByteBufferMessageSet goes on when a set has no message).
                    Large ranges get several, so that each fits into any consumer's fetch.
9 to 29 bytes       a plain message, as no gzip stream is that short. A consumer is given its payload: zeros.
fewer               nothing fits: no entry is smaller than 9 bytes.
"""

from kseg.segment import layout as L
from kseg.segment.kafka07.messages07 import HEADER_BYTES, encode_message

LEAST_BYTES = HEADER_BYTES[0]
_GZIP_START = b"\x1f\x8b\x08%c\x00\x00\x00\x00\x00\xff"
_GZIP_OF_NOTHING = (
    b"\x03\x00" + b"\x00" * 8
)  # the end of a deflate stream, the checksum and the size of nothing
_COMMENTED = 0x10
_LEAST_SET_BYTES = HEADER_BYTES[1] + len(_GZIP_START) - 1 + len(_GZIP_OF_NOTHING)
_SET_BYTES = 64 * 1024
_COMMENT = b"kseg put this in the place of damaged bytes. "


def is_invisible(length: int) -> bool:
    """Whether a consumer is given nothing for a filler of that many bytes."""
    return length >= _LEAST_SET_BYTES


def filler(length: int) -> bytes:
    """Entries of exactly `length` bytes in all, which must not be fewer than LEAST_BYTES."""
    if length < _LEAST_SET_BYTES:
        magic = 1 if length >= HEADER_BYTES[1] else 0
        return encode_message(bytes(length - HEADER_BYTES[magic]), magic)
    whole = max(0, (length - _LEAST_SET_BYTES) // _SET_BYTES)
    rest = length - whole * _SET_BYTES
    return _empty_set(_SET_BYTES) * whole + _empty_set(rest)


def _empty_set(length: int) -> bytes:
    room = length - _LEAST_SET_BYTES
    if not room:
        return encode_message(_GZIP_START % 0 + _GZIP_OF_NOTHING, 1, L.GZIP)
    text = (_COMMENT * (room // len(_COMMENT) + 1))[: room - 1]
    return encode_message(_GZIP_START % _COMMENTED + text + b"\x00" + _GZIP_OF_NOTHING, 1, L.GZIP)
