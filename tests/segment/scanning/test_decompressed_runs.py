"""Runs of compressed batches contain every row once and in order, with each body within its bounds. Bodies that do not fit or cannot be
decompressed are alone in their run."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import lz4.frame
import pytest

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, compress, decompress, filler
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.usual_blocks import fill_bodies, usual_block_end
from kseg.segment.scanning.decompressed_runs import BODY_BYTES, MAX_BODIES, DecompressionBuffer
from tests.support import interpreted_kernels
from tests.support.raw_batches import gzip, sealed

FILL_BYTES = 64 * 1024
BLOCK_BEGINS = {L.LZ4: 11, L.SNAPPY: 20, L.ZSTD: 0}
SLOW = interpreted_kernels.kernels()["usual_blocks"]


def file_of(bodies: Sequence[bytes], codecs: Sequence[int]) -> tuple[Columns, memoryview]:
    table, file = Columns(C.BATCH_WIDTH, len(bodies)), bytearray()
    for row, (body, codec) in enumerate(zip(bodies, codecs, strict=True)):
        data = sealed(body, 1, attributes=codec)
        for column, number in ((C.POSITION, len(file)), (C.SIZE, len(data)), (C.ATTRIBUTES, codec)):
            table.cells[column * table.capacity + row] = number
        file += data
    table.count = len(bodies)
    return table, memoryview(bytes(file))


def reported(
    packed: DecompressionBuffer,
    bodies: Sequence[bytes],
    first: int = 0,
    codecs: Sequence[int] = (),
    limit_bytes: int = MAX_BODY_BYTES,
) -> tuple[list[bytes | None], list[int]]:
    """The body of each row from `first` on, None if there was a problem; and the sizes of the runs."""
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


def test_decompressed_bodies_are_contiguous() -> None:
    contents = [b"a" * size for size in (0, 1, 1000, 5)]
    packed = DecompressionBuffer()
    assert reported(packed, [gzip(content) for content in contents]) == (contents, [4])
    assert reported(packed, [gzip(content) for content in contents], first=2) == (contents[2:], [2])


@pytest.mark.parametrize("count", [MAX_BODIES - 1, MAX_BODIES, MAX_BODIES + 1, 2 * MAX_BODIES + 3])
def test_decompressed_run_ends_at_its_bounds(count: int) -> None:
    contents = [b"%d" % number for number in range(count)]
    found, sizes = reported(DecompressionBuffer(), [gzip(content) for content in contents])
    assert found == contents
    assert max(sizes) == min(count, MAX_BODIES)


def test_body_that_does_not_fit_comes_later_or_alone() -> None:
    half, full, large = (bytes([size % 251]) * size for size in (BODY_BYTES // 2, BODY_BYTES, BODY_BYTES + 1))
    contents = [half, half, b"x", half, large, large, b"y", full, b"z"]
    found, sizes = reported(DecompressionBuffer(), [gzip(content) for content in contents])
    assert found == contents
    assert sizes == [2, 2, 1, 1, 1, 1, 1]


def test_undecodable_body_comes_alone() -> None:
    contents = [b"first", b"second", b"third", b"last"]
    bodies = [gzip(content) for content in contents]
    bodies[1], bodies[2] = b"no gzip", bodies[2][:-9]
    found, sizes = reported(DecompressionBuffer(), bodies)
    assert found == [b"first", None, None, b"last"]
    assert sizes == [1, 1, 1, 1]


def block_of(codec: int, content: bytes, rng: random.Random) -> bytes:
    """A compressed block, written as by Java or in another way, sometimes damaged."""
    block = compress(codec, L.MAGIC_V2, content)
    if codec == L.LZ4 and rng.random() < 0.3:
        flags = {"block_checksum": rng.random() < 0.5, "content_checksum": rng.random() < 0.5}
        block = lz4.frame.compress(content, block_linked=False, store_size=rng.random() < 0.5, **flags)
    if rng.random() < 0.3:
        damaged = bytearray(block)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        block = bytes(damaged[: rng.randrange(len(damaged))] if rng.random() < 0.3 else damaged)
    return block


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limit_bytes", [MAX_BODY_BYTES, FILL_BYTES - 1, 3000])
def test_runs_contain_what_each_block_alone_yields(seed: int, limit_bytes: int) -> None:
    rng = random.Random(seed)
    bodies, codecs = [], []
    expected: list[bytes | None] = []
    codec = L.LZ4
    for _ in range(rng.choice((5, 60, 700))):
        size = rng.choice((0, 1, 90, 2999, 3001, FILL_BYTES - 1, FILL_BYTES, FILL_BYTES + 1, 200_000))
        content = rng.randbytes(20) * (size // 20) if rng.random() < 0.9 else rng.randbytes(size)
        if rng.random() < 0.4:
            codec = rng.choice((L.LZ4, L.LZ4, L.GZIP, L.SNAPPY, L.SNAPPY, L.ZSTD, L.ZSTD, 6))
        block = rng.randbytes(size) if codec == 6 else block_of(codec, content, rng)
        bodies.append(block)
        codecs.append(codec)
        try:
            expected.append(bytes(decompress(codec, L.MAGIC_V2, block, limit_bytes)))
        except CodecError:
            expected.append(None)
    found, sizes = reported(DecompressionBuffer(), bodies, codecs=codecs, limit_bytes=limit_bytes)
    assert found == expected
    assert 0 < max(sizes) <= MAX_BODIES


@pytest.mark.parametrize("codec", BLOCK_BEGINS)
def test_both_readers_of_a_codec_agree_on_damaged_blocks(codec: int) -> None:
    known, rng = filler(codec), random.Random(7)
    assert known is not None
    limit = (known.room_bytes,) if codec == L.LZ4 else ()
    begin, agreed = BLOCK_BEGINS[codec], 0
    room = memoryview(bytearray(known.room_bytes + 10))
    for _ in range(3000):
        body = bytearray(
            compress(codec, L.MAGIC_V2, rng.randbytes(rng.randint(1, 30)) * rng.randint(1, 1000))
        )
        for _ in range(rng.randint(0, 3)):
            body[rng.randrange(min(begin, len(body) - 1), len(body))] = rng.randrange(256)
        end = usual_block_end(body, codec)
        if not end:
            continue
        room[:] = bytes(len(room))
        try:
            size = known.fill(memoryview(body)[begin:end], room[: known.room_bytes], *limit)
        except known.unreadable:
            size = -1
        assert not any(room[known.room_bytes :])
        if size >= 0:
            assert room[:size] == decompress(codec, L.MAGIC_V2, body, MAX_BODY_BYTES)
            agreed += 1
    assert 500 < agreed < 2900


@pytest.mark.parametrize("codec", [L.GZIP, *BLOCK_BEGINS])
def test_only_a_complete_ordinary_block_is_recognized(codec: int) -> None:
    rng, usual = random.Random(codec), 0
    for _ in range(1000):
        body = bytearray(block_of(codec, rng.randbytes(rng.randint(0, 40)) * rng.randint(1, 40), rng))
        for _ in range(rng.randint(0, 2) if body else 0):
            body[rng.randrange(min(30, len(body)))] = rng.randrange(256)
        end = usual_block_end(body, codec)
        assert end == SLOW.usual_block_end(body, codec)
        assert not end or not usual_block_end(body[: end - 1], codec)
        usual += end > 0
    assert 200 < usual < 900 or (codec == L.GZIP and not usual)


@pytest.mark.parametrize(
    "wrong", [{"row": 2, "stop": 2}, {"row": -1}, {"stop": 3}, {"capacity": 3}, {"row": 0, "first": 1}]
)
def test_rows_outside_the_table_are_refused(wrong: dict[str, int]) -> None:
    table, view = file_of([compress(L.LZ4, L.MAGIC_V2, b"abc")] * 2, [L.LZ4, L.LZ4])
    room, known = memoryview(bytearray(BODY_BYTES)), filler(L.LZ4)
    assert known is not None
    place = {"row": 0, "stop": 2, "capacity": table.capacity, "first": 0} | wrong
    for kernel in (fill_bodies, SLOW.fill_bodies):
        with pytest.raises(ValueError, match="too small"):
            kernel(
                view,
                view,
                place["row"],
                place["stop"],
                table.cells,
                place["capacity"],
                known.fill,
                known.unreadable,
                known.room_bytes,
                room,
                memoryview(array("q", bytes(64))),
                place["first"],
                0,
            )
