"""Runs of compressed batches: every row once and in order, each body where its bounds say, whatever does not fit or open alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import lz4.frame
import pytest

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import FILL_BYTES, MAX_BODY_BYTES, compress, decompress, filler
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.decompressed_runs import BODY_BYTES, MAX_BODIES, DecompressionBuffer
from tests.support.raw_batches import gzip, sealed


def file_of(bodies: Sequence[bytes], codecs: Sequence[int]) -> tuple[Columns, memoryview]:
    table, file = Columns(C.BATCH_WIDTH, len(bodies)), b""
    for row, (body, codec) in enumerate(zip(bodies, codecs, strict=True)):
        data = sealed(body, 1, attributes=codec)
        for column, number in ((C.POSITION, len(file)), (C.SIZE, len(data)), (C.ATTRIBUTES, codec)):
            table.cells[column * table.capacity + row] = number
        file += data
    table.count = len(bodies)
    return table, memoryview(file)


def told(
    packed: DecompressionBuffer,
    bodies: Sequence[bytes],
    first: int = 0,
    codecs: Sequence[int] = (),
    limit_bytes: int = MAX_BODY_BYTES,
) -> tuple[list[bytes | None], list[int]]:
    """What each row from `first` on was given as, None where there was a problem; and the sizes of the runs."""
    table, view = file_of(bodies, codecs or [L.GZIP] * len(bodies))
    found: list[bytes | None] = []
    sizes = []
    for run in packed.runs(view, table, first, len(bodies), limit_bytes):
        assert run.first == first + len(found)
        sizes.append(run.stop - run.first)
        if run.problem is not None:
            assert sizes[-1] == 1
            found.append(None)
            continue
        for at in range(run.stop - run.first):
            found.append(bytes(run.body[run.bounds[2 * at] : run.bounds[2 * at + 1]]))
    return found, sizes


def test_bodies_lie_one_behind_the_other() -> None:
    contents = [b"a" * size for size in (0, 1, 1000, 5)]
    packed = DecompressionBuffer()
    assert told(packed, [gzip(content) for content in contents]) == (contents, [4])
    assert told(packed, [gzip(content) for content in contents], first=2) == (contents[2:], [2])


@pytest.mark.parametrize("count", [MAX_BODIES - 1, MAX_BODIES, MAX_BODIES + 1, 2 * MAX_BODIES + 3])
def test_a_run_ends_where_its_bounds_do(count: int) -> None:
    contents = [b"%d" % number for number in range(count)]
    found, sizes = told(DecompressionBuffer(), [gzip(content) for content in contents])
    assert found == contents
    assert max(sizes) == min(count, MAX_BODIES)


def test_what_does_not_fit_comes_later_or_alone() -> None:
    half, full, large = (bytes([size % 251]) * size for size in (BODY_BYTES // 2, BODY_BYTES, BODY_BYTES + 1))
    contents = [half, half, b"x", half, large, large, b"y", full, b"z"]
    found, sizes = told(DecompressionBuffer(), [gzip(content) for content in contents])
    assert found == contents
    assert sizes == [2, 2, 1, 1, 1, 1, 1]


def test_what_cannot_be_opened_comes_alone() -> None:
    contents = [b"first", b"second", b"third", b"last"]
    bodies = [gzip(content) for content in contents]
    bodies[1], bodies[2] = b"no gzip", bodies[2][:-9]
    found, sizes = told(DecompressionBuffer(), bodies)
    assert found == [b"first", None, None, b"last"]
    assert sizes == [1, 1, 1, 1]


def block_of(codec: int, content: bytes, rng: random.Random) -> bytes:
    """A block of a codec, as Java writes it or otherwise, sometimes hurt."""
    block = compress(codec, L.MAGIC_V2, content)
    if codec == L.LZ4 and rng.random() < 0.3:
        flags = {"block_checksum": rng.random() < 0.5, "content_checksum": rng.random() < 0.5}
        block = lz4.frame.compress(content, block_linked=False, store_size=rng.random() < 0.5, **flags)
    if rng.random() < 0.3:
        hurt = bytearray(block)
        hurt[rng.randrange(len(hurt))] ^= 1 << rng.randrange(8)
        block = bytes(hurt[: rng.randrange(len(hurt))] if rng.random() < 0.3 else hurt)
    return block


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limit_bytes", [MAX_BODY_BYTES, FILL_BYTES - 1, 3000])
def test_runs_hold_what_each_block_yields_by_itself(seed: int, limit_bytes: int) -> None:
    rng = random.Random(seed)
    bodies, codecs = [], []
    expected: list[bytes | None] = []
    for _ in range(rng.choice((5, 60, 700))):
        size = rng.choice((0, 1, 90, 2999, 3001, FILL_BYTES - 1, FILL_BYTES, FILL_BYTES + 1, 200_000))
        content = rng.randbytes(20) * (size // 20) if rng.random() < 0.9 else rng.randbytes(size)
        codec = rng.choice((L.LZ4, L.LZ4, L.LZ4, L.LZ4, L.GZIP, L.SNAPPY, L.ZSTD, 6))
        block = rng.randbytes(size) if codec == 6 else block_of(codec, content, rng)
        bodies.append(block)
        codecs.append(codec)
        try:
            expected.append(bytes(decompress(codec, L.MAGIC_V2, block, limit_bytes)))
        except CodecError:
            expected.append(None)
    found, sizes = told(DecompressionBuffer(), bodies, codecs=codecs, limit_bytes=limit_bytes)
    assert found == expected
    assert 0 < max(sizes) <= MAX_BODIES


def test_both_readers_of_lz4_blocks_say_the_same_of_hurt_ones() -> None:
    rng, room = random.Random(7), memoryview(bytearray(FILL_BYTES + 10))
    fill, agreed = filler(L.LZ4), 0
    assert fill is not None
    for _ in range(3000):
        block = bytearray(
            compress(L.LZ4, L.MAGIC_V2, rng.randbytes(rng.randint(1, 30)) * rng.randint(1, 2500))
        )
        for _ in range(rng.randint(0, 3)):
            block[rng.randrange(11, len(block))] = rng.randrange(256)
        room[:] = bytes(len(room))
        size = fill(memoryview(block), room[:FILL_BYTES])
        assert not any(room[FILL_BYTES:])
        if size >= 0:
            assert room[:size] == decompress(L.LZ4, L.MAGIC_V2, block, MAX_BODY_BYTES)
            agreed += 1
    assert 500 < agreed < 2900
