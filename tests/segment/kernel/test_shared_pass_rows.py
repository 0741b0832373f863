"""The data that two processes of a compaction exchange: the keys of a map, and notes about new batches."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from tests.support.kernel_variants import COMPILED, INTERPRETED

TWINS = [
    pytest.param(twin, id=name)
    for name, twin in (("compiled", COMPILED), ("interpreted", INTERPRETED))
    if "keymap" in twin
]


def room(count: int) -> memoryview:
    return memoryview(array("q", bytes(8 * count)))


@pytest.mark.parametrize("twin", TWINS)
def test_packed_slots_contain_every_key_once(twin: dict[str, ModuleType]) -> None:
    rng = random.Random(5)
    slots, taken = room(3 * 50), sorted(rng.sample(range(50), 20))
    expected = []
    for at in taken:
        slot = [rng.getrandbits(63) - (1 << 62), rng.getrandbits(63) - (1 << 62), rng.randrange(1, 1000)]
        slots[3 * at : 3 * at + 3] = memoryview(array("q", slot))
        expected += slot
    out = room(3 * 20)
    assert twin["keymap"].pack_slots(slots, 50, out) == 20
    assert out.tolist() == expected
    for count, too_small in ((51, out), (50, room(3 * 19)), (-1, out)):
        with pytest.raises(ValueError):
            twin["keymap"].pack_slots(slots, count, too_small)


@pytest.mark.parametrize("twin", TWINS)
def test_batch_notes_are_placed_at_their_new_positions(twin: dict[str, ModuleType]) -> None:
    kernel, fields = twin["filter_batches"], (C.POSITION, C.SIZE, C.LAST_OFFSET, C.MAX_TIMESTAMP)
    table, placed, notes = Columns(C.BATCH_WIDTH, 8), Columns(C.BATCH_WIDTH, 4), room(4 * 6)
    table.count, placed.count = 8, 4
    for number, field in enumerate(fields):
        table.column(field)[:] = memoryview(array("q", [100 * number + row for row in range(8)]))
    assert kernel.note_rows(table.cells, 8, 2, 8, notes) == 4 * 6
    assert kernel.place_rows(notes, 1, 4, 5000, placed.cells, 4) == 4
    for number, field in enumerate(fields):
        base = 5000 if field == C.POSITION else 0
        assert placed.column(field).tolist() == [base + 100 * number + row for row in range(3, 7)]
    for arguments in (
        (table.cells, 8, 2, 9, notes),
        (table.cells, 8, 1, 8, notes),
        (table.cells, 8, 5, 4, notes),
    ):
        with pytest.raises(ValueError):
            kernel.note_rows(*arguments)
    for given in (
        (notes, 3, 4, 0, placed.cells, 4),
        (notes, 0, 5, 0, placed.cells, 4),
        (notes, -1, 4, 0, placed.cells, 4),
    ):
        with pytest.raises(ValueError):
            kernel.place_rows(*given)
