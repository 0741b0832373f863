"""LZ4 frames as Kafka reads and writes them (fact sheet §3.4, KIP-57; Kafka: Lz4BlockInputStream).

    frame  := 04 22 4D 18, FLG, BD, [content size: 8], HC, block…, end mark (int32 0), [content checksum: 4]
    block  := int32 little-endian (top bit: stored uncompressed; rest: length), data, [block checksum: 4]
    FLG    := version 01 | block independence | block checksum | content size | content checksum | 00
    BD     := 0 | maximum block size 4…7 (64 KiB, 256 KiB, 1 MiB, 4 MiB) | 0000
    HC     := second byte of xxHash32 over FLG…content size

Kafka's reader differs from a standard one, so the frame is parsed here instead of by a frame library:

- With magic 0, old clients computed the header checksum over the frame's magic as well; it is not verified.
- Blocks that depend on each other, reserved bits and dictionaries are rejected.
- Content size and content checksum are skipped, never compared.
- The first frame is the whole stream: anything after its end is ignored.

Block checksums are rare (no Kafka writer makes them); such blocks are passed one by one to the frame library, which has
the hash function. Of the two block libraries, lz4 is faster and decides all doubtful cases; cramjam can decompress a block into
a given buffer, which saves two copies of each batch of a run.
"""

import struct
from functools import lru_cache

import lz4.block

from kseg.segment import layout as L
from kseg.segment.codecs.codec import Filler, beyond_limit, check_level
from kseg.segment.errors import CodecError
from kseg.segment.kernel.usual_blocks import usual_block_end

_FRAME_MAGIC = 0x184D2204
_STORED = 0x80000000
_HEADER = struct.Struct("<IBBB")
_SIZE = struct.Struct("<I")
_END_MARK = bytes(4)
_JAVA_FLG, _JAVA_BD, _JAVA_HC = 0x60, 0x40, 0x82
_JAVA_HEADER = _HEADER.pack(_FRAME_MAGIC, _JAVA_FLG, _JAVA_BD, _JAVA_HC)
_HC_MAGIC_V0 = 0x1A  # old Java clients include the frame magic in the header checksum
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_WRITTEN_BLOCK = 64 * 1024
_DEFAULT_LEVEL, _MAX_LEVEL, _LIBRARY_MAX_LEVEL = 9, 17, 12
_MAX_RATIO = 255  # one byte of a length extension yields at most 255 bytes

_block_content = lz4.block.decompress
_pack_block = lz4.block.compress
_BlockError = lz4.block.LZ4BlockError


def decompress(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """The content of the first frame in `data`; see `codec.decompress`."""
    end = usual_block_end(data, L.LZ4) if magic else 0
    if not end:
        return _decompress_any(data, magic, limit_bytes)
    try:
        content: bytes = _block_content(data[11:end], _WRITTEN_BLOCK)
    except _BlockError as error:
        raise CodecError("an lz4 block cannot be decoded") from error
    if len(content) > limit_bytes:
        raise beyond_limit("lz4", limit_bytes)
    return memoryview(content)


def filler() -> Filler | None:
    """See `codec.filler`; None if only the required libraries are installed."""
    try:
        import cramjam
    except ImportError:
        return None
    return Filler(cramjam.lz4.decompress_block_into, cramjam.DecompressionError, _WRITTEN_BLOCK)


def _decompress_any(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """Decompress any frame: header, then block after block."""
    flg, max_block, position = _header(data, check=magic != 0)
    checksum_bytes = 4 if flg & _BLOCK_CHECKSUM else 0
    pieces: list[bytes | memoryview] = []
    room = limit_bytes
    while True:
        if position + 4 > len(data):
            raise CodecError("the lz4 frame ends before its end mark")
        word = _SIZE.unpack_from(data, position)[0]
        size = word & ~_STORED
        start = position + 4
        position = start + size + checksum_bytes
        if size == 0:
            if flg & _CONTENT_CHECKSUM and start + 4 > len(data):
                raise CodecError("the lz4 frame ends inside its content checksum")
            break
        if size > max_block:
            raise CodecError(f"an lz4 block of {size} bytes exceeds the frame's maximum of {max_block}")
        if position > len(data):
            raise CodecError("the lz4 frame ends inside a block")
        block = data[start : start + size]
        if checksum_bytes:
            piece: bytes | memoryview = _checked_block(data[start - 4 : position], max_block)
        else:
            piece = block if word & _STORED else _compressed_block(block, max_block)
        room -= len(piece)
        if room < 0:
            raise beyond_limit("lz4", limit_bytes)
        pieces.append(piece)
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _header(data: memoryview, check: bool) -> tuple[int, int, int]:
    """(FLG, maximum block size in bytes, position of the first block)."""
    if len(data) < _HEADER.size:
        raise CodecError("the lz4 frame header is truncated")
    frame_magic, flg, bd, _ = _HEADER.unpack_from(data)
    if frame_magic != _FRAME_MAGIC:
        raise CodecError("the bytes are not an lz4 frame")
    if flg >> 6 != 1 or flg & 3:
        raise CodecError(f"the lz4 frame flags {flg:#04x} have another version or reserved bits")
    if not flg & 0x20:
        raise CodecError("the blocks of the lz4 frame depend on each other, which Kafka does not allow")
    if bd & 0x8F or bd >> 4 < 4:
        raise CodecError(f"the lz4 block descriptor {bd:#04x} is not defined by the format")
    position = 6 + (8 if flg & _CONTENT_SIZE else 0)
    if position + 1 > len(data):
        raise CodecError("the lz4 frame header is truncated")
    if check and data[position] != _header_checksum(bytes(data[4:position])):
        raise CodecError("the lz4 frame descriptor does not match its checksum")
    return flg, 1 << (2 * (bd >> 4) + 8), position + 1


def _compressed_block(block: memoryview, max_block: int) -> bytes:
    try:
        content: bytes = _block_content(block, uncompressed_size=min(max_block, _MAX_RATIO * len(block)))
    except (_BlockError, ValueError, OverflowError) as error:
        raise CodecError("an lz4 block cannot be decoded") from error
    return content


def _checked_block(block: memoryview, max_block: int) -> bytes:
    """Decompress a block with its size before it and its checksum after it, as the only block of a frame."""
    import lz4.frame

    descriptor = bytes((_JAVA_FLG | _BLOCK_CHECKSUM, (max_block.bit_length() - 9) // 2 << 4))
    header = _SIZE.pack(_FRAME_MAGIC) + descriptor + bytes((_header_checksum(descriptor),))
    try:
        content: bytes = lz4.frame.decompress(b"".join((header, block, bytes(4))))
    except (RuntimeError, ValueError) as error:
        raise CodecError("an lz4 block cannot be decoded or does not match its checksum") from error
    return content


@lru_cache(maxsize=64)
def _header_checksum(descriptor: bytes) -> int:
    """Second byte of xxHash32 with seed 0, for input below 16 bytes (a descriptor has 2 or 10)."""
    low32 = 0xFFFFFFFF
    value = (0x165667B1 + len(descriptor)) & low32
    words = len(descriptor) // 4
    for (word,) in struct.iter_unpack("<I", descriptor[: 4 * words]):
        value = (value + word * 0xC2B2AE3D) & low32
        value = ((value << 17 | value >> 15) & low32) * 0x27D4EB2F & low32
    for byte in descriptor[4 * words :]:
        value = (value + byte * 0x165667B1) & low32
        value = ((value << 11 | value >> 21) & low32) * 0x9E3779B1 & low32
    value = (value ^ value >> 15) * 0x85EBCA77 & low32
    value = (value ^ value >> 13) * 0xC2B2AE3D & low32
    return (value ^ value >> 16) >> 8 & 0xFF


def compress(data: bytes, magic: int, level: int | None = None) -> bytes:
    """One frame as Java writes it: 64 KiB blocks, no checksums; with magic 0, the wrong header checksum of old clients."""
    if level is None and magic and 0 < len(data) <= _WRITTEN_BLOCK:  # the usual batch
        packed = _pack_block(data, store_size=False)
        if len(packed) < len(data):
            return b"".join((_JAVA_HEADER, _SIZE.pack(len(packed)), packed, _END_MARK))
    level = _DEFAULT_LEVEL if level is None else level
    check_level("lz4", level, 1, _MAX_LEVEL)
    pieces = [_HEADER.pack(_FRAME_MAGIC, _JAVA_FLG, _JAVA_BD, _JAVA_HC if magic else _HC_MAGIC_V0)]
    for start in range(0, len(data), _WRITTEN_BLOCK):
        block = data[start : start + _WRITTEN_BLOCK]
        # Kafka uses the fast compressor at the default level, the high-compression one at any other
        if level == _DEFAULT_LEVEL:
            packed = lz4.block.compress(block, store_size=False)
        else:
            packed = lz4.block.compress(
                block, mode="high_compression", compression=min(level, _LIBRARY_MAX_LEVEL), store_size=False
            )
        if len(packed) < len(block):
            pieces += (_SIZE.pack(len(packed)), packed)
        else:
            pieces += (_SIZE.pack(len(block) | _STORED), block)
    pieces.append(_END_MARK)
    return b"".join(pieces)
