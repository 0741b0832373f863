"""Unusual compressed blocks, and how Kafka 4.3.1's readers treat them.

The real org.apache.kafka.common.compress.* classes read each row of `KAFKA_SAYS` to the end. The last column is the result: the content, or
an error.
"""

import gzip
import struct
import zlib

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress, decompress
from kseg.segment.errors import CodecError

LIMIT = 1 << 22
P = b"hello world, " * 30


def content_of(codec: int, magic: int, data: bytes) -> bytes:
    return bytes(decompress(codec, magic, memoryview(data), LIMIT))


GZ = gzip.compress(P, mtime=0)
GZ_NOTHING = gzip.compress(b"")
X = bytes.fromhex("82534e41505059000000000100000001")
RAW = bytes(cramjam.snappy.compress_raw(P))
Z = zstandard.ZstdCompressor(write_content_size=False).compress(P)
Z_SIZED = zstandard.ZstdCompressor().compress(P)
Z_SUMMED = zstandard.ZstdCompressor(write_checksum=True).compress(P)
STREAM = zstandard.ZstdCompressor(write_content_size=False).compressobj()
Z_FLUSHED = STREAM.compress(P) + STREAM.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + STREAM.flush()
SKIPPED = b"\x50\x2a\x4d\x18\x05\x00\x00\x00abcde"
BLOCK = lz4.block.compress(P, store_size=False)
ERROR = None


def block(data: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(packed)) + packed


def header_sum(flg: int, bd: int) -> int:
    """The header checksum (HC) of a frame without content size. The library writes the same header for the same parameters."""
    frame = lz4.frame.compress(
        bytes((1 << 2 * (bd >> 4) + 8) + 1),  # for smaller content the library chooses smaller blocks
        block_size=bd >> 4,
        block_linked=not flg & 0x20,
        block_checksum=bool(flg & 0x10),
        content_checksum=bool(flg & 4),
        store_size=False,
    )
    assert frame[4:6] == bytes((flg, bd))
    return int(frame[6])


def frame(
    flg: int, bd: int, *blocks: bytes, end: bytes = bytes(4), hc: int | None = None, size: bytes = b""
) -> bytes:
    hc = header_sum(flg, bd) if hc is None else hc
    return b"".join((b"\x04\x22\x4d\x18", bytes((flg, bd)), size, bytes((hc,)), *blocks, end))


def packed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def gz(flags: int, extra: bytes) -> bytes:
    return GZ[:3] + bytes((flags,)) + GZ[4:10] + extra + GZ[10:]


FHCRC_SUM = struct.pack("<H", zlib.crc32(gz(2, b"")[:10]) & 0xFFFF)
SIZED_HC = lz4.frame.compress(P, block_linked=False, store_size=True)[14]
SIZED_LENGTH = struct.pack("<Q", len(P))
SUMMED = lz4.frame.compress(P, block_linked=False, block_checksum=True, store_size=False, block_size=4)

KAFKA_SAYS: dict[str, tuple[int, int, bytes, bytes | None]] = {
    # gzip
    "gzip: 30 bytes of garbage behind": (1, 2, GZ + b"x" * 30, P),
    "gzip: 5 bytes of garbage behind": (1, 2, GZ + b"x" * 5, P),
    "gzip: zeros behind": (1, 2, GZ + bytes(512), P),
    "gzip: two members": (1, 2, GZ + GZ, P + P),
    "gzip: five members": (1, 2, GZ * 5, P * 5),
    "gzip: second member cut": (1, 2, GZ + GZ[:-3], ERROR),
    "gzip: second member only a header": (1, 2, GZ + GZ[:8], P),
    "gzip: 18 bytes of a second member": (1, 2, GZ + GZ[:18], P),
    "gzip: 19 bytes of a second member": (1, 2, GZ + GZ[:19], ERROR),
    "gzip: second member does not match": (1, 2, GZ + GZ[:-5] + b"\0" + GZ[-4:], ERROR),
    "gzip: second member has bad deflate data": (1, 2, GZ + GZ[:10] + b"\xff" * 30, ERROR),
    "gzip: empty member first": (1, 2, GZ_NOTHING + GZ, P),
    "gzip: cut": (1, 2, GZ[:-1], ERROR),
    "gzip: wrong checksum": (1, 2, GZ[:-5] + b"\0" + GZ[-4:], ERROR),
    "gzip: claims 4 GiB": (1, 2, GZ[:-4] + b"\xff" * 4, ERROR),
    "gzip: claims no bytes": (1, 2, GZ[:-4] + bytes(4), ERROR),
    "gzip: wrong size": (1, 2, GZ[:-1] + b"\1", ERROR),
    "gzip: empty": (1, 2, b"", ERROR),
    "gzip: reserved flags": (1, 2, gz(0xA0, b""), P),
    "gzip: name": (1, 2, gz(8, b"name\0"), P),
    "gzip: text flag": (1, 2, gz(1, b""), P),
    "gzip: extra field": (1, 2, gz(4, b"\x03\x00abc"), P),
    "gzip: header checksum": (1, 2, gz(2, FHCRC_SUM), P),
    "gzip: wrong header checksum": (1, 2, gz(2, b"\1\2"), ERROR),
    "gzip: method 7": (1, 2, GZ[:2] + b"\x07" + GZ[3:], ERROR),
    # snappy
    "snappy: empty": (2, 2, b"", ERROR),
    "snappy: raw": (2, 2, RAW, P),
    "snappy: raw with bytes behind": (2, 2, RAW + b"xx", ERROR),
    "snappy: raw and cut": (2, 2, RAW[:-1], ERROR),
    "snappy: raw nothing": (2, 2, b"\0", b""),
    "snappy: header only": (2, 2, X, b""),
    "snappy: 15 bytes of header": (2, 2, X[:15], ERROR),
    "snappy: two blocks": (2, 2, X + block(P) + block(b"abc"), P + b"abc"),
    "snappy: 1 byte behind": (2, 2, X + block(P) + b"\0", P),
    "snappy: 3 bytes behind": (2, 2, X + block(P) + b"\0\0\0", P),
    "snappy: a block of no bytes behind": (2, 2, X + block(P) + bytes(4), ERROR),
    "snappy: a block of no bytes first": (2, 2, X + bytes(4) + block(P), ERROR),
    "snappy: header in the middle": (2, 2, X + block(P) + X + block(b"abc"), P + b"abc"),
    "snappy: header twice": (2, 2, X + X + block(P), P),
    "snappy: header in the middle cut": (2, 2, X + block(P) + X[:10], ERROR),
    "snappy: header in the middle version 0": (2, 2, X + block(P) + X[:8] + bytes(8) + block(b"abc"), ERROR),
    "snappy: negative length": (2, 2, X + b"\xff\0\0\0abc", ERROR),
    "snappy: huge length": (2, 2, X + b"\x7f\xff\xff\xffabc", ERROR),
    "snappy: block cut": (2, 2, X + block(P)[:-1], ERROR),
    "snappy: block missing": (2, 2, X + block(P) + b"\0\0\0\5", ERROR),
    "snappy: empty content between": (2, 2, X + block(P) + block(b"") + block(b"abc"), P + b"abc"),
    "snappy: only empty content": (2, 2, X + block(b""), b""),
    "snappy: another version": (2, 2, X[:8] + struct.pack(">ii", 9, 1) + block(P), P),
    "snappy: version 0": (2, 2, X[:8] + bytes(8) + block(P), P),
    "snappy: claims 4 GiB": (2, 2, X + b"\0\0\0\6\xff\xff\xff\xff\x0fa", ERROR),
    "snappy: raw claims 1 byte": (2, 2, b"\1" + RAW[2:], ERROR),
    # lz4
    "lz4: magic 0, any header checksum": (3, 0, frame(0x60, 0x40, packed(BLOCK), hc=0), P),
    "lz4: magic 0, right header checksum": (3, 0, frame(0x60, 0x40, packed(BLOCK)), P),
    "lz4: magic 1, wrong header checksum": (3, 1, frame(0x60, 0x40, packed(BLOCK), hc=0), ERROR),
    "lz4: magic 1, header checksum of magic 0": (3, 1, frame(0x60, 0x40, packed(BLOCK), hc=0x1A), ERROR),
    "lz4: magic 2, wrong header checksum": (3, 2, frame(0x60, 0x40, packed(BLOCK), hc=0x83), ERROR),
    "lz4: content checksum, wrong": (3, 2, frame(0x64, 0x40, packed(BLOCK), end=bytes(4) + b"abcd"), P),
    "lz4: content checksum cut": (3, 2, frame(0x64, 0x40, packed(BLOCK), end=bytes(4) + b"abc"), ERROR),
    "lz4: dependent blocks": (3, 0, frame(0x40, 0x40, packed(BLOCK), hc=0), ERROR),
    "lz4: reserved flag": (3, 0, frame(0x62, 0x40, packed(BLOCK), hc=0), ERROR),
    "lz4: version 2": (3, 0, frame(0xA0, 0x40, packed(BLOCK), hc=0), ERROR),
    "lz4: content size": (3, 2, frame(0x68, 0x40, packed(BLOCK), size=SIZED_LENGTH, hc=SIZED_HC), P),
    "lz4: content size, wrong": (3, 0, frame(0x68, 0x40, packed(BLOCK), size=b"\1" * 8, hc=0), P),
    "lz4: content size cut": (3, 0, b"\x04\x22\x4d\x18\x68\x40\1\1", ERROR),
    "lz4: 6 bytes, magic 0": (3, 0, b"\x04\x22\x4d\x18\x60\x40", ERROR),
    "lz4: 6 bytes, magic 1": (3, 1, b"\x04\x22\x4d\x18\x60\x40", ERROR),
    "lz4: only a header": (3, 1, b"\x04\x22\x4d\x18\x60\x40\x82", ERROR),
    "lz4: no blocks": (3, 1, frame(0x60, 0x40), b""),
    "lz4: no end mark": (3, 1, frame(0x60, 0x40, packed(BLOCK), end=b""), ERROR),
    "lz4: end mark cut": (3, 1, frame(0x60, 0x40, packed(BLOCK), end=bytes(3)), ERROR),
    "lz4: stored block of no bytes ends": (3, 1, frame(0x60, 0x40, packed(BLOCK), end=b"\0\0\0\x80"), P),
    "lz4: bytes behind": (3, 1, frame(0x60, 0x40, packed(BLOCK)) + b"xyz", P),
    "lz4: a second frame": (3, 1, frame(0x60, 0x40, packed(BLOCK)) * 2, P),
    "lz4: stored block": (3, 1, frame(0x60, 0x40, stored(b"a" * 65536)), b"a" * 65536),
    "lz4: stored block too long": (3, 1, frame(0x60, 0x40, stored(b"a" * 65537)), ERROR),
    "lz4: content of a block too long": (
        3,
        1,
        frame(0x60, 0x40, packed(lz4.block.compress(b"a" * 65537, store_size=False))),
        ERROR,
    ),
    "lz4: content of a larger block": (
        3,
        1,
        frame(0x60, 0x50, packed(lz4.block.compress(b"a" * 65537, store_size=False))),
        b"a" * 65537,
    ),
    "lz4: block checksum": (3, 1, SUMMED, P),
    "lz4: wrong block checksum": (3, 1, SUMMED[:-5] + b"\xaa" + SUMMED[-4:], ERROR),
    "lz4: block checksum missing": (3, 1, SUMMED[:-8], ERROR),
    "lz4: block of no content": (3, 1, frame(0x60, 0x40, packed(b"\0"), packed(BLOCK)), P),
    "lz4: block size code 3": (3, 0, frame(0x60, 0x30, packed(BLOCK), hc=0), ERROR),
    "lz4: block size high bit": (3, 0, frame(0x60, 0xC0, packed(BLOCK), hc=0), ERROR),
    "lz4: block size reserved bits": (3, 0, frame(0x60, 0x41, packed(BLOCK), hc=0), ERROR),
    "lz4: broken block": (3, 1, frame(0x60, 0x40, packed(b"\xf0abc")), ERROR),
    "lz4: match before the start": (3, 1, frame(0x60, 0x40, packed(b"\x44abcd\x09\0\x50aaaaa")), ERROR),
    # zstd
    "zstd: no content size": (4, 2, Z, P),
    "zstd: flushed before the end": (4, 2, Z_FLUSHED, P),
    "zstd: flushed, without an end": (4, 2, Z_FLUSHED[:-3], ERROR),
    "zstd: flushed, the last block is not the last": (4, 2, Z_FLUSHED[:-3] + bytes(3), ERROR),
    "zstd: flushed, garbage behind": (4, 2, Z_FLUSHED + b"x", ERROR),
    "zstd: flushed, bad block": (4, 2, Z_FLUSHED[:20] + b"\xff" * 8 + Z_FLUSHED[28:], ERROR),
    "zstd: content size": (4, 2, Z_SIZED, P),
    "zstd: checksum": (4, 2, Z_SUMMED, P),
    "zstd: wrong checksum": (4, 2, Z_SUMMED[:-1] + bytes((Z_SUMMED[-1] ^ 1,)), ERROR),
    "zstd: wrong checksum of nothing": (4, 2, bytes.fromhex("28b52ffd240001000099e1d851"), ERROR),
    "zstd: two frames": (4, 2, Z + Z_SIZED, P + P),
    "zstd: no input": (4, 2, b"", b""),
    "zstd: 1 byte of garbage behind": (4, 2, Z + b"x", ERROR),
    "zstd: 20 bytes of garbage behind": (4, 2, Z + b"x" * 20, ERROR),
    "zstd: zeros behind": (4, 2, Z + bytes(12), ERROR),
    "zstd: skippable frame first": (4, 2, SKIPPED + Z, P),
    "zstd: skippable frame last": (4, 2, Z + SKIPPED, P),
    "zstd: only a skippable frame": (4, 2, SKIPPED, b""),
    "zstd: skippable frame cut": (4, 2, Z + SKIPPED[:-1], P),
    "zstd: skippable frame of 4 GiB": (4, 2, Z + b"\x5f\x2a\x4d\x18\xff\xff\xff\xff", ERROR),
    "zstd: cut by 1": (4, 2, Z[:-1], ERROR),
    "zstd: cut by 9": (4, 2, Z[:-9], ERROR),
    "zstd: second frame cut": (4, 2, Z + Z[:5], P),
    "zstd: window of 128 MiB": (4, 2, Z[:5] + b"\x88" + Z[6:], P),
    "zstd: window above 128 MiB": (4, 2, Z[:5] + b"\x89" + Z[6:], ERROR),
    "zstd: dictionary": (4, 2, Z[:4] + b"\x01" + Z[5:6] + b"\x07" + Z[6:], ERROR),
    "zstd: reserved bit": (4, 2, Z[:4] + b"\x08" + Z[5:], ERROR),
    "zstd: unused bit": (4, 2, Z[:4] + b"\x10" + Z[5:], P),
    "zstd: wrong content size": (4, 2, Z_SIZED[:5] + b"\xff\xff" + Z_SIZED[7:], ERROR),
    "zstd: claims 256 MiB in one segment": (
        4,
        2,
        b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 1 << 28) + b"\1\0\0",
        ERROR,
    ),
    "zstd: other frame magic": (4, 2, b"\x27\xb5\x2f\xfd" + Z[4:], ERROR),
}
ROWS_OF = {
    "lz4: magic 0, any": ("F43",),
    "lz4: magic 1, wrong": ("F44",),
    "lz4: magic 2, wrong": ("F44",),
    "lz4: stored block too long": ("F45",),
    "lz4: content of a block too": ("F45",),
    "lz4: block size": ("F45",),
    "lz4: 6 bytes": ("F46",),
    "lz4: content size cut": ("F46",),
    "lz4: block checksum": ("F47",),
    "lz4: stored block": ("F47",),
}


def verdicts() -> list[object]:
    params = []
    for name, case in KAFKA_SAYS.items():
        rows = {row for start, ids in ROWS_OF.items() if name.startswith(start) for row in ids}
        marks = [pytest.mark.behaviour(*sorted(rows))] if rows else []
        params.append(pytest.param(*case, id=name, marks=marks))
    return list(params)


@pytest.mark.parametrize(("codec", "magic", "data", "content"), verdicts())
def test_unusual_blocks_are_read_or_rejected_like_kafka(
    codec: int, magic: int, data: bytes, content: bytes | None
) -> None:
    if content is None:
        with pytest.raises(CodecError) as caught:
            content_of(codec, magic, data)
        assert str(caught.value)
    else:
        assert content_of(codec, magic, data) == content


@pytest.mark.behaviour("F45")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damaged_lz4_block_size_is_an_error(magic: int) -> None:
    good = compress(L.LZ4, magic, P)
    for value in range(256):
        broken = bytearray(good)
        # third byte of the block size, in units of 64 KiB
        broken[9] = value
        if value & 0x7F:
            with pytest.raises(CodecError):
                content_of(L.LZ4, magic, bytes(broken))
