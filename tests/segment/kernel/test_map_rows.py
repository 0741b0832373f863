"""Batches put into the map without a table of records give the same result as with a dictionary, from a file and from bodies.

Each test runs with the compiled kernel and with the interpreted one on buffers that check their indexes.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import state_fields as S
from tests.segment.kernel.test_keymap import siphash_128
from tests.support.interpreted_kernels import Checked
from tests.support.kernel_variants import COMPILED, INTERPRETED
from tests.support.raw_batches import record, sealed

SECRET = bytes(range(16))
SLOTS = 64
BOTH = pytest.mark.parametrize(
    "kernel", [COMPILED.get("keymap"), INTERPRETED["keymap"]], ids=["compiled", "interpreted"]
)


@dataclass
class Batch:
    """keys: of the records, at consecutive offsets. body: replaces the records."""

    base_offset: int
    keys: Sequence[bytes | None]
    body: bytes | None = None

    @property
    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        return b"".join(record(at, key=key, timestamp_delta=at * 1000) for at, key in enumerate(self.keys))


def table_of(batches: Sequence[Batch]) -> tuple[Columns, bytes]:
    """The table that a walk would fill, and the content of the file."""
    table, file = Columns(C.BATCH_WIDTH, len(batches) + 2), b""
    for row, batch in enumerate(batches):
        data = sealed(batch.content, len(batch.keys), base_offset=batch.base_offset)
        cells = {
            C.POSITION: len(file),
            C.SIZE: len(data),
            C.MAGIC: 2,
            C.BASE_OFFSET: batch.base_offset,
            C.COUNT: len(batch.keys),
        }
        for column, number in cells.items():
            table.cells[column * table.capacity + row] = number
        file += data
    table.count = len(batches)
    return table, file


class Map:
    """A map with the state of a kernel."""

    def __init__(self, kernel: ModuleType | None, limit: int = SLOTS - 1) -> None:
        if kernel is None:
            pytest.skip("the kernels are not compiled")
        self.kernel, self.limit = kernel, limit
        self.slots = memoryview(array("q", bytes(24 * SLOTS)))
        self.state = memoryview(array("q", bytes(8 * S.MAP_WIDTH)))
        self.pending = memoryview(array("q", bytes(32 * K.PENDING)))

    def put(
        self,
        table: Columns,
        body: bytes,
        bounds: Sequence[int],
        first: int,
        row: int,
        stop: int,
        start: int = 0,
    ) -> int:
        def wrap(buffer: Any) -> Any:
            return Checked(buffer) if self.kernel is INTERPRETED["keymap"] else buffer

        first_half, second_half = (int.from_bytes(half, "little") for half in (SECRET[:8], SECRET[8:]))
        output: int = self.kernel.map_rows(
            wrap(body),
            wrap(memoryview(array("q", bounds))),
            first,
            row,
            stop,
            wrap(table.cells),
            table.capacity,
            start,
            first_half,
            second_half,
            wrap(self.slots),
            SLOTS,
            self.limit,
            wrap(self.pending),
            wrap(self.state),
        )
        return output

    def latest(self) -> dict[bytes, int]:
        """The content of the slots by hash of the key."""
        found = {}
        for at in range(0, 3 * SLOTS, 3):
            first, second, mark = self.slots[at : at + 3]
            if mark:
                found[
                    first.to_bytes(8, "little", signed=True) + second.to_bytes(8, "little", signed=True)
                ] = mark - 1
        return found


def model(batches: Sequence[Batch], start: int = 0) -> dict[bytes, int]:
    latest = {
        key: batch.base_offset + at
        for batch in batches
        for at, key in enumerate(batch.keys)
        if key is not None and batch.base_offset + at >= start
    }
    return {siphash_128(SECRET, key, 1, 3): offset for key, offset in latest.items()}


def packed(batches: Sequence[Batch]) -> tuple[bytes, list[int]]:
    """The bodies one after the other, separated by bytes that belong to none."""
    body, bounds = b"\xff\xff", []
    for batch in batches:
        bounds += [len(body), len(body) + len(batch.content)]
        body += batch.content + b"\xff"
    return body, bounds


def random_batches(rng: random.Random) -> list[Batch]:
    batches, offset = [], rng.choice((0, 5, 1 << 40))
    for _ in range(rng.randint(1, 6)):
        keys = [
            None if rng.random() < 0.1 else rng.choice((b"", b"k", b"long" * 5, b"%d" % rng.randint(0, 30)))
            for _ in range(rng.choice((0, 1, 7, 40)))
        ]
        batches.append(Batch(offset, keys))
        offset += len(keys) + rng.randint(0, 3)
    return batches


@BOTH
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_map_has_the_last_offset_of_each_key(
    kernel: ModuleType | None, seed: int, is_packed: bool
) -> None:
    batches = random_batches(random.Random(seed))
    table, file = table_of(batches)
    body, bounds = packed(batches) if is_packed else (file, [])
    start = batches[len(batches) // 2].base_offset
    both = Map(kernel)
    assert both.put(table, body, bounds, 0, 0, len(batches), start) == K.MAPPED
    assert both.latest() == model(batches, start)
    # start at a row in the middle of a run, as after a bad batch
    rest = Map(kernel)
    middle = len(batches) // 2
    assert rest.put(table, body, bounds, 0, middle, len(batches)) == K.MAPPED
    assert rest.latest() == model(batches[middle:])


@BOTH
@pytest.mark.parametrize("is_packed", [False, True])
def test_full_map_names_the_batch_that_filled_it(kernel: ModuleType | None, is_packed: bool) -> None:
    batches = [Batch(10 * n, [b"%d" % (10 * n + at) for at in range(4)]) for n in range(5)]
    table, file = table_of(batches)
    body, bounds = packed(batches) if is_packed else (file, [])
    small = Map(kernel, limit=10)
    assert small.put(table, body, bounds, 0, 0, 5) == K.FULL
    assert small.state[S.MAP_STOPPED] == 2
    assert (small.state[S.MAP_SIZE], small.state[S.MAP_OFFSET], small.state[S.MAP_ROW]) == (10, 21, 2)


@BOTH
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        record(0, key=b"z")[:-1],
        record(0, key=b"z") + b"\x00",
        b"\x7f",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x0c\x00\x80\x80\x80\x80\x80\x80",
    ],
    ids=["nothing", "cut", "more", "length beyond", "endless varint", "timestamp beyond"],
)
def test_undecodable_body_is_reported_after_the_batches_before_it(
    kernel: ModuleType | None, is_packed: bool, body: bytes
) -> None:
    batches = [Batch(0, [b"a", b"b"]), Batch(5, [b"c"], body), Batch(9, [b"d"])]
    table, file = table_of(batches)
    content, bounds = packed(batches) if is_packed else (file, [])
    damaged = Map(kernel)
    assert damaged.put(table, content, bounds, 0, 0, 3) == K.BAD
    assert damaged.state[S.MAP_STOPPED] == 1
    reported = damaged.latest()
    assert model(batches[:1]).items() <= reported.items()
    assert not model(batches[2:]).keys() & reported.keys()
    assert damaged.put(table, content, bounds, 0, 2, 3) == K.MAPPED
    assert model(batches[2:]).items() <= damaged.latest().items()


@BOTH
@pytest.mark.parametrize(
    ("bounds", "first", "row", "stop"),
    [
        ((0, 5), 0, 0, 2),
        ((0, 5, 6, 1 << 40), 0, 1, 2),
        ((-4, 5, 6, 7), 0, 0, 2),
        ((3, 2, 6, 7), 0, 0, 2),
        ((0, 5, 6, 7), 1, 0, 2),
        ((0, 5, 6, 7), -1, -1, 1),
        ((), 0, 0, 99),
    ],
)
def test_bounds_and_rows_outside_their_buffers_are_refused(
    kernel: ModuleType | None, bounds: tuple[int, ...], first: int, row: int, stop: int
) -> None:
    table, file = table_of([Batch(0, [b"a"]), Batch(1, [b"b"])])
    with pytest.raises(ValueError, match=r"outside|fewer|smaller"):
        Map(kernel).put(table, file, bounds, first, row, stop)


@BOTH
@pytest.mark.parametrize(("position", "size"), [(-1, 80), (0, 60), (0, 1 << 40), (1 << 40, 80)])
def test_batch_outside_its_file_is_refused(kernel: ModuleType | None, position: int, size: int) -> None:
    table, file = table_of([Batch(0, [b"a"])])
    table.cells[C.POSITION * table.capacity] = position
    table.cells[C.SIZE * table.capacity] = size
    assert size < L.BATCH_HEADER or position or size > len(file)
    with pytest.raises(ValueError, match="outside"):
        Map(kernel).put(table, file, (), 0, 0, 1)
