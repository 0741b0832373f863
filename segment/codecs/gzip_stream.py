"""gzip as Kafka reads and writes it (RFC 1952, fact sheet §3.2; java.util.zip.GZIPInputStream).

    stream  := member…
    member  := header, deflate stream, CRC-32 of the content (4), size of the content mod 2^32 (4)
    header  := 1F 8B 08 FLG, time (4), 2 more, [extra: length (2) and bytes], [name 00], [comment 00], [CRC-16]

The rules of Java's reader, which tolerates more than zlib:

- Reserved bits of FLG are ignored.
- After a member, 18 bytes or fewer are ignored. So is anything that does not begin with a valid header.
- A member with a valid header must be complete and match its trailer.

The usual batch is one member with a plain header: libdeflate decompresses it in one call, given the size from the trailer
if the limit and the format allow it. It would silently ignore further members, so it is used only if the bytes that
begin a member occur once; if it fails, or is not installed, the slower path below decides.

On the slower path the header is parsed here, and isal inflates the raw deflate stream. The first member gets all the
input at once; further ones get it in small pieces, because the library copies what it has not used, which would make
many tiny members cost quadratic time.
"""

import struct
import zlib
from typing import Any

from kseg.segment.codecs.codec import beyond_limit, check_level
from kseg.segment.crc import crc32
from kseg.segment.errors import CodecError

_at_once: Any
try:
    import deflate as _at_once
except ImportError:
    _at_once = None
_inflater: Any
try:
    from isal import isal_zlib as _inflater
except ImportError:  # half as fast, but part of Python
    _inflater = zlib
_InflateError: type[Exception] = _inflater.error

_MEMBER_START = b"\x1f\x8b\x08"
_PLAIN_START = _MEMBER_START + b"\x00"
_MAX_AT_ONCE = 4 * 1024 * 1024
_MAX_RATIO = 1032  # deflate's longest match yields 258 bytes from 2 bits
_JAVA_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 0x02, 0x04, 0x08, 0x10
_TRAILER = struct.Struct("<II")
_MIN_MEMBER = 18  # fewer bytes cannot be header and trailer: Java ignores them
_PIECE = 8 * 1024
_RAW_DEFLATE = -15
_DEFAULT_LEVEL = -1


def decompress(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """The content of all members; see `codec.decompress`."""
    if _at_once is not None and _MIN_MEMBER < len(data) <= _MAX_AT_ONCE:
        packed = bytes(data)
        size_bytes = int.from_bytes(packed[-4:], "little")
        if (
            packed.startswith(_PLAIN_START)
            and 0 < size_bytes <= limit_bytes
            and size_bytes <= _MAX_RATIO * len(packed)
            and not packed.rfind(_MEMBER_START)  # the only member starts at 0
        ):
            try:
                return memoryview(_at_once.gzip_decompress(packed, size_bytes))
            except _at_once.DeflateError:  # `suppress` would add 1 µs to about 10 µs
                pass
    return _decompress_any(data, limit_bytes)


def _decompress_any(data: memoryview, limit_bytes: int) -> memoryview:
    """Decompress member by member, by the rules of Java's reader."""
    position = _after_header(data, 0)
    content, position = _member(data, position, limit_bytes, limit_bytes, len(data))
    if len(data) - position <= _MIN_MEMBER:
        return memoryview(content)
    pieces = [content]
    room = limit_bytes - len(content)
    while len(data) - position > _MIN_MEMBER:
        try:
            position = _after_header(data, position)
        except CodecError:
            break
        try:
            content, position = _member(data, position, room, limit_bytes, _PIECE)
        except CodecError as error:
            error.content = b"".join((*pieces, error.content))
            raise
        room -= len(content)
        pieces.append(content)
    return memoryview(b"".join(pieces))


def _after_header(data: memoryview, position: int) -> int:
    """The position of the deflate stream of the member at `position`."""
    start = position
    if len(data) - start < 10:
        raise CodecError("the gzip header is truncated")
    if data[start] != 0x1F or data[start + 1] != 0x8B:
        raise CodecError("the bytes are not a gzip stream")
    if data[start + 2] != 8:
        raise CodecError(f"gzip method {data[start + 2]} is not defined")
    flags = data[start + 3]
    position += 10
    if not flags:
        return position
    if flags & _EXTRA:
        if len(data) - position < 2:
            raise CodecError("the gzip header is truncated")
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for field in (_NAME, _COMMENT):
        if flags & field:
            position = _after_text(data, position)
    if flags & _HEADER_CRC:
        stored = int.from_bytes(data[position : position + 2], "little")
        if len(data) - position < 2 or stored != crc32(data[start:position]) & 0xFFFF:
            raise CodecError("the gzip header does not match its checksum")
        position += 2
    if position > len(data):
        raise CodecError("the gzip header is truncated")
    return position


def _after_text(data: memoryview, position: int) -> int:
    """The position after the zero that ends a header text; searches piece by piece, to avoid copying a long remainder."""
    while position < len(data):
        piece = bytes(data[position : position + _PIECE])
        found = piece.find(0)
        if found >= 0:
            return position + found + 1
        position += len(piece)
    raise CodecError("the gzip header is truncated")


def _member(
    data: memoryview, position: int, room: int, limit_bytes: int, piece_bytes: int
) -> tuple[bytes, int]:
    """(content, position after the trailer) of the member whose deflate stream begins at `position`."""
    inflate = _inflater.decompressobj(_RAW_DEFLATE)
    parts: list[bytes] = []
    size_bytes = 0
    try:
        while not inflate.eof:
            if position >= len(data):
                raise _behind_the_content("the gzip stream ends too early", b"".join(parts))
            piece = data[position : position + piece_bytes]
            # one byte more than allowed shows that the limit is exceeded
            part = inflate.decompress(piece, room - size_bytes + 1)
            size_bytes += len(part)
            if size_bytes > room:
                raise beyond_limit("gzip", limit_bytes)
            parts.append(part)
            position += len(piece)
    except _InflateError as undecodable:
        raise CodecError("the deflate stream cannot be decoded") from undecodable
    position -= len(inflate.unused_data)
    content = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) - position < _TRAILER.size:
        raise _behind_the_content("the gzip stream ends inside its trailer", content)
    if _TRAILER.unpack_from(data, position) != (crc32(content), len(content) & 0xFFFFFFFF):
        raise _behind_the_content("the gzip content does not match its checksum", content)
    return content, position + _TRAILER.size


def _behind_the_content(sentence: str, content: bytes) -> CodecError:
    """An error that Java hits only after it has returned all of the content: a bad trailer, or a premature end of the input."""
    error = CodecError(sentence)
    error.content = content
    return error


def compress(data: bytes, magic: int, level: int | None = None) -> bytes:
    """Compress data into one member with the header that Java writes."""
    level = _DEFAULT_LEVEL if level is None else level
    if level != _DEFAULT_LEVEL:
        check_level("gzip", level, 1, 9)
    deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE)
    trailer = _TRAILER.pack(crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_JAVA_HEADER, deflate.compress(data), deflate.flush(), trailer))
