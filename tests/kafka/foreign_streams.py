"""Compressed blocks as libraries other than Kafka's write them: every frame option, several frames in one block, and elements that the
formats allow but no library writes. A broker stores what the producer sent if the topic's compression.type is `producer`.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from kseg.segment import layout as L

CODECS = (L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD)
XERIAL = b"\x82SNAPPY\x00"


def foreign_stream(rng: random.Random, codec: int, content: bytes) -> bytes:
    """The content in a block as another library would write it. A broker cannot read some of them."""
    return _WRITERS[codec](rng, content)


def parts_of(rng: random.Random, content: bytes, most: int = 4) -> list[bytes]:
    """The content in one to `most` consecutive parts, some of them empty."""
    cuts = sorted(rng.choices(range(len(content) + 1), k=rng.randrange(most)))
    return [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]


def _usually_whole(rng: random.Random, content: bytes) -> list[bytes]:
    return [content] if rng.random() < 0.6 else parts_of(rng, content)


# --- gzip


def _gzip(rng: random.Random, content: bytes) -> bytes:
    stream = b"".join(_member(rng, part) for part in _usually_whole(rng, content))
    return stream + rng.choice((b"",) * 8 + (bytes(1), bytes(18), bytes(512), b"\x1f\x8b", b"tail"))


def _member(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.3:
        return gzip.compress(content, rng.choice((0, 1, 9)), mtime=rng.choice((0, 1_700_000_000)))
    flags = rng.choice((0, 1, 2, 4, 8, 16, 31, rng.randrange(256)))
    header = b"\x1f\x8b\x08" + bytes([flags]) + rng.randbytes(6)
    if flags & 4:
        extra = rng.randbytes(rng.choice((0, 6, 300)))
        header += struct.pack("<H", len(extra)) + extra
    for bit in (8, 16):
        if flags & bit:
            header += rng.choice((b"", b"name", b"\xe9" * 40)) + b"\0"
    if flags & 2:
        header += struct.pack("<H", (zlib.crc32(header) ^ rng.choice((0,) * 9 + (1,))) & 0xFFFF)
    deflate = zlib.compressobj(
        rng.choice((0, 1, 6, 9)), zlib.DEFLATED, -rng.choice((9, 12, 15)), strategy=rng.randrange(5)
    )
    body = b""
    for part in parts_of(rng, content):
        body += deflate.compress(part)
        if rng.random() < 0.4:
            body += deflate.flush(rng.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH)))
    trailer = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    return header + body + deflate.flush() + trailer


# --- snappy


def _snappy(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.3:
        return _raw_snappy(rng, content)
    stream = b""
    for part in _usually_whole(rng, content):
        version, compatible = rng.choice(((1, 1),) * 6 + ((2, 1), (3, 3), (0, 1), (-1, 1), (1, 2**31 - 1)))
        if not stream or rng.random() < 0.5:
            stream += XERIAL + struct.pack(">ii", version, compatible)
        size = rng.choice((1, 7, 100, 1024, 32 * 1024, 65_536, 1 << 20))
        for begin in range(0, len(part), max(size, len(part) // 50)):
            block = _raw_snappy(rng, part[begin : begin + max(size, len(part) // 50)])
            stream += struct.pack(">i", len(block)) + block
    return stream + rng.choice((b"",) * 8 + (b"\0", bytes(3), bytes(4), b"\x82SNA", XERIAL))


def _raw_snappy(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.7 or not content:
        return bytes(cramjam.snappy.compress_raw(content))
    length = _varint(len(content), rng.choice((0, 0, 0, 1)))
    elements = b""
    for part in parts_of(rng, content):
        if not part:
            continue
        run = len(part) - len(part.lstrip(part[:1]))
        # a copy that overlaps itself, in each of its encodings
        if run > 5:
            elements += _literal(rng, part[:1])
            left = run - 1
            while left:
                piece = min(left, rng.choice((4, 11, 64)))
                if 4 <= piece <= 11 and rng.random() < 0.5:
                    elements += bytes([1 | piece - 4 << 2, 1])
                elif rng.random() < 0.5:
                    elements += bytes([2 | piece - 1 << 2, 1, 0])
                else:
                    elements += bytes([3 | piece - 1 << 2, 1, 0, 0, 0])
                left -= piece
            part = part[run:]
        if part:
            elements += _literal(rng, part)
    return length + elements


def _literal(rng: random.Random, data: bytes) -> bytes:
    """A literal, its length encoded in as many bytes as it needs or in more."""
    least = 0 if len(data) <= 60 else ((len(data) - 1).bit_length() + 7) // 8
    count = rng.randint(least, 4)
    if not count:
        return bytes([len(data) - 1 << 2]) + data
    return bytes([59 + count << 2]) + (len(data) - 1).to_bytes(count, "little") + data


def _varint(number: int, padding: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number | (128 if padding else 0))
    return bytes(out) + (b"\0" if padding else b"")


# --- lz4


def _lz4(rng: random.Random, content: bytes) -> bytes:
    stream = b"".join(_frame(rng, part) for part in _usually_whole(rng, content))
    return stream + rng.choice((b"",) * 8 + (bytes(4), b"tail", _skippable(rng)))


def _frame(rng: random.Random, content: bytes) -> bytes:
    options = {
        "compression_level": rng.choice((-5, 0, 3, 9, 12)),
        "block_size": rng.choice((0, 4, 5, 6, 7)),
        "block_checksum": rng.random() < 0.3,
        "content_checksum": rng.random() < 0.4,
        "auto_flush": rng.random() < 0.5,
        "block_linked": rng.random() < 0.2,
    }
    with lz4.frame.LZ4FrameCompressor(**options) as writer:
        pieces = [writer.begin(len(content) if rng.random() < 0.4 else 0)]
        pieces += [writer.compress(part) for part in parts_of(rng, content)]
        return b"".join((*pieces, writer.flush()))


# --- zstd


def _zstd(rng: random.Random, content: bytes) -> bytes:
    stream = b"".join(
        (_skippable(rng) if rng.random() < 0.1 else b"") + _zstd_frame(rng, part)
        for part in _usually_whole(rng, content)
    )
    return stream + rng.choice((b"",) * 8 + (_skippable(rng), b"\0", b"tail", _skippable(rng)[:-1]))


def _zstd_frame(rng: random.Random, content: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        rng.choice((-7, 1, 3, 12, 19)),
        window_log=rng.choice((10, 12, 17, 21, 27)),
        write_content_size=rng.random() < 0.5,
        write_checksum=rng.random() < 0.4,
        enable_ldm=rng.random() < 0.1,
    )
    if rng.random() < 0.05:
        parameters = zstandard.ZstdCompressionParameters(
            format=zstandard.FORMAT_ZSTD1_MAGICLESS, compression_level=3
        )
    dictionary = zstandard.ZstdCompressionDict(content[:60] + bytes(8)) if rng.random() < 0.03 else None
    compressor = zstandard.ZstdCompressor(compression_params=parameters, dict_data=dictionary)
    if rng.random() < 0.5:
        return compressor.compress(content)
    writer = compressor.compressobj(len(content) if rng.random() < 0.5 else -1)
    pieces: list[bytes] = []
    for part in parts_of(rng, content):
        pieces.append(writer.compress(part))
        if rng.random() < 0.5:
            pieces.append(writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    return b"".join((*pieces, writer.flush()))


def _skippable(rng: random.Random) -> bytes:
    data = rng.randbytes(rng.choice((0, 1, 4, 20)))
    return struct.pack("<II", 0x184D2A50 + rng.randrange(16), len(data)) + data


_WRITERS: dict[int, Callable[[random.Random, bytes], bytes]] = {
    L.GZIP: _gzip,
    L.SNAPPY: _snappy,
    L.LZ4: _lz4,
    L.ZSTD: _zstd,
}
