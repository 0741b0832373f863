"""The codecs compared with Kafka 4.3.1's own readers and writers.

The hex strings under `JAVA_WROTE` are the output of org.apache.kafka.common.compress.*. `test_codec_verdicts` shows how its readers treat
unusual blocks.
"""

import gzip
import struct
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress, decompress
from kseg.segment.errors import CodecError
from tests.support.paths import ROOT

LIMIT = 1 << 22
SENTENCE = b"kseg reads what Kafka wrote, " * 3
JAVA_WROTE = {
    (
        L.GZIP,
        2,
    ): "1f8b08000000000000ffcb2e4e4d57284a4d4c295628cf482c51f04e4ccb4e54282fca2f49d551c8265b1200e20c894557000000",
    (
        L.SNAPPY,
        2,
    ): "82534e415050590000000001000000010000002257706b7365672072656164732077686174204b61666b612077726f74652c20e61d00",
    (
        L.LZ4,
        0,
    ): "04224d1860401a28000000ff0e6b7365672072656164732077686174204b61666b612077726f74652c201d0022506f74652c2000000000",
    (
        L.LZ4,
        2,
    ): "04224d1860408228000000ff0e6b7365672072656164732077686174204b61666b612077726f74652c201d0022506f74652c2000000000",
    (
        L.ZSTD,
        2,
    ): "28b52ffd0058240100e86b7365672072656164732077686174204b61666b612077726f74652c2001001d9cca09010000",
}
JAVA_WROTE_NOTHING = {
    L.GZIP: "1f8b08000000000000ff03000000000000000000",
    L.SNAPPY: "82534e41505059000000000100000001",
    L.LZ4: "04224d1860408200000000",
    L.ZSTD: "28b52ffd2000010000",
}
LEGAL = [(codec, magic) for codec in range(5) for magic in range(3) if codec != L.ZSTD or magic == L.MAGIC_V2]
P = b"hello world, " * 30
X = bytes.fromhex("82534e41505059000000000100000001")
LZ4_HEADER = bytes.fromhex("04224d18604082")
GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")


def content_of(codec: int, magic: int, data: bytes, limit_bytes: int = LIMIT) -> bytes:
    return bytes(decompress(codec, magic, memoryview(data), limit_bytes))


# --- what Java writes, and what we write


@pytest.mark.behaviour("F43", "F44", "F48")
@pytest.mark.parametrize(("codec", "magic"), JAVA_WROTE)
def test_streams_written_by_java_are_decompressed(codec: int, magic: int) -> None:
    assert content_of(codec, magic, bytes.fromhex(JAVA_WROTE[codec, magic])) == SENTENCE


@pytest.mark.parametrize("codec", JAVA_WROTE_NOTHING)
def test_empty_streams_written_by_java_are_decompressed(codec: int) -> None:
    assert content_of(codec, 2, bytes.fromhex(JAVA_WROTE_NOTHING[codec])) == b""


def test_framing_of_compressed_streams_equals_javas() -> None:
    for (codec, magic), header_bytes in {
        (L.GZIP, 2): 10,
        (L.SNAPPY, 2): 16,
        (L.LZ4, 0): 7,
        (L.LZ4, 1): 7,
        (L.ZSTD, 2): 6,
    }.items():
        expected = bytes.fromhex(JAVA_WROTE[codec, 2 if magic == 1 else magic])
        assert compress(codec, magic, SENTENCE)[:header_bytes] == expected[:header_bytes]
    assert compress(L.LZ4, 0, b"")[:7] == bytes.fromhex("04224d1860401a")
    assert (
        zstandard.get_frame_parameters(compress(L.ZSTD, 2, SENTENCE)).content_size
        == zstandard.CONTENTSIZE_UNKNOWN
    )


@pytest.mark.behaviour("F47", "F48")
@pytest.mark.parametrize(("codec", "magic"), LEGAL)
@pytest.mark.parametrize("size_bytes", [0, 1, 1024, 32768, 65535, 65536, 65537, 131072, 600_001])
def test_every_codec_and_magic_round_trips(codec: int, magic: int, size_bytes: int) -> None:
    data = (b"%d bytes of it, " % size_bytes * size_bytes)[:size_bytes]
    assert content_of(codec, magic, compress(codec, magic, data)) == data


@pytest.mark.behaviour("F47")
@settings(max_examples=60)
@given(pieces=st.lists(st.binary(max_size=2000) | st.just(bytes(30000)), max_size=6), seed=st.randoms())
def test_any_content_round_trips(pieces: list[bytes], seed: object) -> None:
    data = b"".join(pieces)
    for codec, magic in LEGAL:
        packed = compress(codec, magic, data)
        assert content_of(codec, magic, packed, len(data)) == data
        # any kind of buffer is accepted
        assert bytes(decompress(codec, magic, packed, LIMIT)) == data


@pytest.mark.behaviour("F48")
@pytest.mark.parametrize(
    ("codec", "levels"),
    [(L.GZIP, (-1, 1, 5, 9)), (L.LZ4, (1, 5, 9, 12, 17)), (L.ZSTD, (-131072, -7, 1, 3, 19, 22))],
)
def test_every_level_is_readable(codec: int, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert content_of(codec, 2, compress(codec, 2, P, level)) == P
    for level in (-131073, 0 if codec != L.ZSTD else 23, 100):
        with pytest.raises(CodecError, match="level"):
            compress(codec, 2, P, level)


def test_snappy_has_no_levels() -> None:
    with pytest.raises(CodecError, match="level"):
        compress(L.SNAPPY, 2, P, 1)


@pytest.mark.parametrize("codec", range(1, 5))
def test_other_libraries_read_compressed_streams(codec: int) -> None:
    packed = compress(codec, 2, P)
    if codec == L.GZIP:
        assert gzip.decompress(packed) == P
    elif codec == L.SNAPPY:
        assert bytes(cramjam.snappy.decompress_raw(packed[20:])) == P
    elif codec == L.LZ4:
        assert lz4.frame.decompress(packed) == P
    else:
        assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == P


# --- legality


@pytest.mark.behaviour("F29")
@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_below_magic_2(magic: int) -> None:
    with pytest.raises(CodecError, match=f"magic {magic}"):
        decompress(L.ZSTD, magic, bytes.fromhex(JAVA_WROTE[L.ZSTD, 2]), LIMIT)
    with pytest.raises(CodecError, match=f"magic {magic}"):
        compress(L.ZSTD, magic, b"")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(CodecError, match=f"codec id {codec}"):
        decompress(codec, 2, b"", LIMIT)
    with pytest.raises(CodecError, match=f"codec id {codec}"):
        compress(codec, 2, b"")


def test_uncompressed_content_is_the_same_buffer() -> None:
    data = bytearray(b"abc")
    view = decompress(L.NONE, 2, data, 3)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"
    with pytest.raises(CodecError, match="limit of 2 bytes"):
        decompress(L.NONE, 2, data, 2)


# --- limits and hostile input


@pytest.mark.parametrize(("codec", "magic"), LEGAL)
@pytest.mark.parametrize("size_bytes", [2, 5000, 70_000, 400_000])
def test_decompression_limit_is_exact(codec: int, magic: int, size_bytes: int) -> None:
    data = (b"limit" * size_bytes)[:size_bytes]
    packed_data = compress(codec, magic, data)
    assert content_of(codec, magic, packed_data, size_bytes) == data
    for limit_bytes in (size_bytes - 1, size_bytes // 2, 0):
        with pytest.raises(CodecError, match=f"limit of {limit_bytes} bytes"):
            content_of(codec, magic, packed_data, limit_bytes)


@pytest.mark.parametrize("codec", range(1, 5))
@given(data=st.data())
@settings(max_examples=150)
def test_damage_is_a_codec_error_or_content(codec: int, data: st.DataObject) -> None:
    good = bytearray(compress(codec, 2, data.draw(st.binary(max_size=300)) * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for magic in (2,) if codec == L.ZSTD else (0, 1, 2):
        try:
            assert len(content_of(codec, magic, bytes(good), 10_000)) <= 10_000
        except CodecError as error:
            assert str(error)


@given(codec=st.integers(0, 7), magic=st.integers(0, 2), data=st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_a_codec_error_or_content(codec: int, magic: int, data: bytes) -> None:
    prefixes = (b"", X, LZ4_HEADER, GZIP_HEADER, b"\x28\xb5\x2f\xfd")
    for prefix in prefixes:
        try:
            assert len(content_of(codec, magic, prefix + data, 5000)) <= 5000
        except CodecError as error:
            assert str(error)


@pytest.mark.parametrize("codec", range(1, 5))
def test_every_truncation_is_an_error(codec: int) -> None:
    good = compress(codec, 2, SENTENCE)
    for length in range(1, len(good)):
        # only a header and up to 3 more bytes
        if codec == L.SNAPPY and 16 <= length < 20:
            assert content_of(codec, 2, good[:length]) == b""
        else:
            with pytest.raises(CodecError):
                content_of(codec, 2, good[:length])


BOMBS = """
import resource, struct, zlib, lz4.block, cramjam
from kseg.segment.codecs.codec import decompress
from kseg.segment.errors import CodecError

def run_blocks(count, size_field):
    header = b"\\x28\\xb5\\x2f\\xfd" + (b"\\xa0" + struct.pack("<I", size_field) if size_field else b"\\x00\\x58")
    block = struct.pack("<I", 131072 << 3 | 2)[:3] + b"a"
    return header + block * (count - 1) + struct.pack("<I", 131072 << 3 | 3)[:3] + b"a"

deflate = zlib.compressobj(1, wbits=31)
zeros = bytes(1 << 20)
gz = b"".join(deflate.compress(zeros) for _ in range(192)) + deflate.flush()
lz4_block = lz4.block.compress(bytes(4 << 20), store_size=False)
lz4_bomb = b"\\x04\\x22\\x4d\\x18\\x60\\x70\\x73" + (struct.pack("<I", len(lz4_block)) + lz4_block) * 64 + bytes(4)
snappy_block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
header = bytes.fromhex("82534e41505059000000000100000001")
bombs = [
    (1, gz), (3, lz4_bomb), (2, header + (struct.pack(">i", len(snappy_block)) + snappy_block) * 500),
    (2, b"\\xff\\xff\\xff\\xff\\x07" + bytes(200_000_000)), (2, header + b"\\x00\\x00\\x00\\x09\\xff\\xff\\xff\\xff\\x0fabcd"),
    (4, run_blocks(8000, 0)), (4, run_blocks(1000, 1000 * 131072)), (4, run_blocks(8000, 1000)),
]
for codec, bomb in bombs:
    for limit_bytes in (1000, 1 << 20, (1 << 23) + 1):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            decompress(codec, 2, bomb, limit_bytes)
        except CodecError:
            pass
        else:
            raise SystemExit(f"codec {codec} passed the limit")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown * 1024 > 2 * limit_bytes + (8 << 20):
            raise SystemExit(f"codec {codec} took {grown} KiB for a limit of {limit_bytes}")
"""


def test_decompression_bombs_take_no_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMBS],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_many_tiny_compressed_pieces_take_linear_time() -> None:
    """If a reader scanned the rest of the input for each piece, this would take half a minute or more."""
    count = 20_000
    assert content_of(1, 2, gzip.compress(b"") * count) == b""
    raw = bytes(cramjam.snappy.compress_raw(b"a"))
    assert content_of(2, 2, X + (struct.pack(">i", len(raw)) + raw) * count) == b"a" * count
    assert (
        content_of(3, 2, LZ4_HEADER + struct.pack("<Ic", 1 << 31 | 1, b"a") * count + bytes(4))
        == b"a" * count
    )
    assert content_of(4, 2, zstandard.ZstdCompressor().compress(b"a") * count) == b"a" * count


def test_codec_library_is_loaded_on_first_use() -> None:
    program = (
        "import sys\n"
        "from kseg.segment.codecs.codec import decompress\n"
        "heavy = {'lz4', 'zstandard', 'cramjam', 'snappy', 'isal'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"decompress(3, 2, bytes.fromhex('{JAVA_WROTE[L.LZ4, 2]}'), 1000)\n"
        "assert heavy & set(sys.modules) == {'lz4'}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_gzip_works_without_its_fast_libraries() -> None:
    program = (
        "import sys\n"
        "sys.modules['deflate'] = sys.modules['isal'] = None\n"
        "from kseg.segment.codecs.codec import compress, decompress\n"
        "one = compress(1, 2, b'ab' * 5000)\n"
        "assert bytes(decompress(1, 2, one, 10000)) == b'ab' * 5000\n"
        "assert bytes(decompress(1, 2, one + one, 20000)) == b'ab' * 10000\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_gzip_members_are_read_the_same_with_and_without_libdeflate(monkeypatch: pytest.MonkeyPatch) -> None:
    one = compress(L.GZIP, 2, P)
    blocks = [one, one + one, one + b"x" * 30, one + one[:-1], one[:-1]]

    def outcomes() -> list[bytes | None]:
        found: list[bytes | None] = []
        for block in blocks:
            try:
                found.append(content_of(L.GZIP, 2, block))
            except CodecError:
                found.append(None)
        return found

    expected = [P, P + P, P, None, None]
    assert outcomes() == expected
    monkeypatch.setattr("kseg.segment.codecs.gzip_stream._at_once", None)
    assert outcomes() == expected
