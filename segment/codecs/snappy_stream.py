"""Snappy as Kafka reads and writes it (fact sheet §3.3; xerial's SnappyInputStream and SnappyOutputStream).

    stream := header, block…
    header := 82 'SNAPPY' 00, version int32, least compatible version int32     (16 bytes, big-endian)
    block  := length int32, that many bytes of raw snappy

Native clients write one raw snappy block without any framing under the same codec id. The rules of the reader:

- Fewer than 16 bytes, or 8 first bytes other than those of the header: the input is one raw block. Empty input is an error.
- A header in the middle (joined streams) is skipped if its version is at least 1. So are 16 bytes of which only the first 4 match those
  of a header: the reader reports the end of the stream there, and continues after them if it is called again.
- 1 to 3 bytes after the last block end the stream. A truncated block, an empty block and a negative length are errors.

Raw snappy starts with the length of its content. The length is accepted only within the limit and within what the format
can yield: the longest copy makes 64 bytes out of 3.

Reading uses cramjam; writing uses python-snappy (which is based on cramjam and adds a copy).
"""

import struct

import cramjam

from kseg.segment import layout as L
from kseg.segment.codecs.codec import Filler, beyond_limit
from kseg.segment.errors import CodecError
from kseg.segment.kernel.usual_blocks import usual_block_end

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_HEADER_BYTES = len(_HEADER)
_HEADER_AS_LENGTH = struct.unpack(">i", _MAGIC[:4])[0]
_LENGTH = struct.Struct(">i")
_MIN_VERSION = 1
_MAX_BLOCK = 512 * 1024 * 1024  # xerial's default limit
_WRITTEN_BLOCK = 32 * 1024
_MAX_RATIO = 22

_content_length = cramjam.snappy.decompress_raw_len
_content = cramjam.snappy.decompress_raw


def decompress(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """The content of a xerial stream or of one raw block; see `codec.decompress`."""
    end = len(data)
    if usual_block_end(data, L.SNAPPY):
        return _raw(data[_HEADER_BYTES + _LENGTH.size :], limit_bytes, limit_bytes)
    if end < _HEADER_BYTES or data[:8] != _MAGIC:
        return _raw(data, limit_bytes, limit_bytes)
    pieces = []
    room = limit_bytes
    position = _HEADER_BYTES
    while position + 4 <= end:
        length = _LENGTH.unpack_from(data, position)[0]
        if length == _HEADER_AS_LENGTH:
            _check_header(data, position)
            position += _HEADER_BYTES
            continue
        position += 4
        if not 0 < length <= _MAX_BLOCK:
            error = CodecError(f"a snappy block cannot have {length} bytes")
            error.java_class = "SnappyError" if length else ""
            raise error
        if length > end - position:
            raise CodecError("the snappy stream ends inside a block")
        piece = _raw(data[position : position + length], room, limit_bytes)
        room -= len(piece)
        pieces.append(piece)
        position += length
    return memoryview(b"".join(pieces))


def filler() -> Filler:
    """See `codec.filler`."""
    return Filler(cramjam.snappy.decompress_raw_into, cramjam.DecompressionError, 2 * _WRITTEN_BLOCK)


def _check_header(data: memoryview, position: int) -> None:
    """Raises CodecError for a header that is truncated, or whose version Java rejects."""
    if len(data) - position < _HEADER_BYTES:
        raise CodecError("the snappy stream ends inside a second header")
    version = _LENGTH.unpack_from(data, position + 8)[0]
    if data[position : position + 8] == _MAGIC and version < _MIN_VERSION:
        raise CodecError(f"the second header of the snappy stream has version {version}")


def _raw(block: memoryview, room: int, limit_bytes: int) -> memoryview:
    """The content of one raw block, at most `room` bytes."""
    try:
        length = _content_length(block)
        if length > room:
            raise beyond_limit("snappy", limit_bytes)
        if length > _MAX_RATIO * len(block) or not len(block):
            raise CodecError("a snappy block declares more content than it can hold")
        try:
            return memoryview(_content(block, length))
        except cramjam.DecompressionError:
            return _with_more_behind(block, length)
    except (cramjam.DecompressionError, ValueError, OverflowError) as error:
        raise CodecError("a snappy block cannot be decoded") from error


def _with_more_behind(block: memoryview, length: int) -> memoryview:
    """The content of a block whose last literal has one or two bytes and stores its length after its tag.

    The library requires four bytes after such a tag, so it is given the block with another literal appended. A literal that runs past
    the end of the block would include appended bytes; a second attempt with a literal of another size reveals that.
    """
    start = next(at for at, byte in enumerate(block) if byte < 0x80) + 1
    for size in (4, 3):
        total = length + size
        head = bytes((*(total >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)), total >> 28))
        more = bytes([size - 1 << 2]) + b"\xff" * size
        content = _content(b"".join((head, block[start:], more)), total)
    return memoryview(content)[:length]


def compress(data: bytes, magic: int, level: int | None = None) -> bytes:
    """A xerial stream as Java writes it, in blocks of 32 KiB. snappy does not support levels."""
    import snappy

    if level is not None:
        raise CodecError("snappy does not support levels")
    pieces = [_HEADER]
    for start in range(0, len(data), _WRITTEN_BLOCK):
        block = snappy.compress(data[start : start + _WRITTEN_BLOCK])
        pieces += (_LENGTH.pack(len(block)), block)
    return b"".join(pieces)
