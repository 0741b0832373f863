"""Rows of keys and offsets are extracted, merged, queried, divided and looked up as with dictionaries, compiled and interpreted."""

from __future__ import annotations

import random
from array import array
from collections import defaultdict
from types import ModuleType
from typing import Any

import pytest

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_verdicts as K
from kseg.segment.kernel import state_fields as S
from tests.support.kernel_variants import COMPILED, INTERPRETED

TWINS = [
    pytest.param(twin["key_exchange"], id=name)
    for name, twin in (("compiled", COMPILED), ("interpreted", INTERPRETED))
    if "key_exchange" in twin
]
Row = tuple[int, int, int]


def cells(*numbers: int) -> memoryview:
    return memoryview(array("q", numbers))


def room(count: int) -> memoryview:
    return memoryview(array("q", bytes(8 * count)))


def random_rows(rng: random.Random, count: int, keys: int) -> list[Row]:
    names = [(rng.getrandbits(63) - (1 << 62), rng.getrandbits(63) - (1 << 62)) for _ in range(keys)]
    offsets = rng.sample(range(10 * count), count)
    return [(*rng.choice(names), offset) for offset in offsets]


def packed(rows: list[Row]) -> memoryview:
    return cells(*(number for first, second, offset in rows for number in (first, second, offset + 1)))


@pytest.mark.parametrize("kernel", TWINS)
@pytest.mark.parametrize("seed", range(6))
def test_fold_keeps_the_latest_offset_of_a_key_and_reports_the_others(kernel: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, 300, rng.choice((1, 7, 100, 5000)))
    asked = [(*rng.choice(rows)[:2], rng.randrange(3000)) for _ in range(50)] + [(1, 2, 3)]
    slots, gone, state = room(3 * 512), room(400), room(3)
    assert kernel.fold_rows(packed(rows), 0, 300, slots, 512, 511, state, gone) == 300
    latest: dict[tuple[int, int], int] = {}
    for first, second, offset in rows:
        latest[first, second] = max(offset, latest.get((first, second), -1))
    assert state[S.FOLD_SIZE] == len(latest)
    reported = sorted(gone[: state[S.FOLD_GONE]])
    assert reported == sorted(offset for *key, offset in rows if offset < latest[key[0], key[1]])
    state[S.FOLD_GONE] = 0
    kernel.ask_rows(packed(asked), len(asked), slots, 512, state, gone)
    older = [offset for first, second, offset in asked if offset < latest.get((first, second), -1)]
    assert list(gone[: state[S.FOLD_GONE]]) == older


@pytest.mark.parametrize("kernel", TWINS)
def test_fold_into_a_full_map_stops_at_the_first_new_key(kernel: ModuleType) -> None:
    rows = [(1, 1, 0), (2, 2, 1), (1, 1, 2), (3, 3, 3), (1, 1, 4)]
    slots, gone, state = room(3 * 4), room(5), room(3)
    assert kernel.fold_rows(packed(rows), 0, 5, slots, 4, 2, state, gone) == 3
    assert (list(gone[:1]), list(state[:2])) == ([0], [2, 1])
    slots = room(3 * 4)
    state[S.FOLD_SIZE] = 0
    assert kernel.fold_rows(packed(rows), 3, 5, slots, 4, 2, state, gone) == 5


@pytest.mark.parametrize("kernel", TWINS)
@pytest.mark.parametrize("parts", [1, 3, 16])
def test_scatter_puts_rows_of_a_key_into_one_part(kernel: ModuleType, parts: int) -> None:
    rows = random_rows(random.Random(parts), 200, 40)
    given = packed([row if number % 5 else (0, 0, -1) for number, row in enumerate(rows)])
    bounds, out = room(parts + 1), room(600)
    total = kernel.scatter_rows(given, 200, parts, bounds, out)
    assert total == 160 and bounds[0] == 0 and bounds[parts] == 160
    parts_of: dict[tuple[int, int], set[int]] = defaultdict(set)
    for part in range(parts):
        for at in range(bounds[part], bounds[part + 1]):
            parts_of[out[3 * at], out[3 * at + 1]].add(part)
    assert all(len(found) == 1 for found in parts_of.values())
    scattered = {tuple(out[3 * at : 3 * at + 3]) for at in range(total)}
    assert scattered == {(a, b, o + 1) for number, (a, b, o) in enumerate(rows) if number % 5}


@pytest.mark.parametrize("kernel", TWINS)
def test_scatter_puts_offsets_into_their_range(kernel: ModuleType) -> None:
    offsets = [5, 99, 0, 30, 31, 29, 7, 1 << 40]
    bounds, out = room(4), room(8)
    kernel.scatter_offsets(cells(*offsets), 8, cells(5, 30, 100), 3, bounds, out)
    parts = [list(out[bounds[part] : bounds[part + 1]]) for part in range(3)]
    assert parts == [[5, 0, 29, 7], [99, 30, 31], [1 << 40]]


def records(*rows: tuple[int, int, int, int, int]) -> Columns:
    """A table of records given as (offset, key start, key length, value start, value length)."""
    table = Columns(C.RECORD_WIDTH, 8)
    columns = (C.R_OFFSET, C.R_KEY_START, C.R_KEY_LENGTH, C.R_VALUE_START, C.R_VALUE_LENGTH)
    for at, row in enumerate(rows):
        for column, number in zip(columns, row, strict=True):
            table.cells[column * table.capacity + at] = number
    table.count = len(rows)
    return table


@pytest.mark.parametrize("kernel", TWINS)
def test_copy_rows_takes_keyed_records_in_a_range(kernel: ModuleType) -> None:
    table = records((3, 0, 1, 0, 0), (4, 0, -1, 0, 0), (5, 0, 0, 0, 0), (6, 0, 1, 0, 0), (9, 0, 1, 0, 0))
    hashes, out, state = cells(*range(100, 110)), room(30), cells(0, -1)
    copy = (table.cells, table.capacity, 5, hashes)
    assert kernel.copy_rows(*copy, 4, 9, 10, state, out) == 5
    assert list(state) == [2, 6]
    assert list(out[:6]) == [104, 105, 6, 106, 107, 7]
    assert kernel.copy_rows(*copy, 7, 100, 9, state, out) == 4, "9 is not below the bound"
    assert kernel.copy_rows(*copy, 0, 100, 10, cells(0, 2), out) == 5
    assert kernel.copy_rows(*copy, 0, 100, 10, cells(0, 3), out) == 0, "3 was there already"


@pytest.mark.parametrize("kernel", TWINS)
def test_look_up_finds_marked_offsets(kernel: ModuleType) -> None:
    table = records((8, 0, 4, 4, 4), (9, 0, 4, 4, -1), (17, 0, -1, 0, 2), (4000, 8, 0, 0, 0), (1, 0, 0, 0, 0))
    bits, words = bytearray(2), room(10)
    assert kernel.mark_offsets(cells(9, 8 + 15), 2, 8, bits) == 2
    assert kernel.mark_offsets(cells(9, 24), 2, 8, bits) == 1, "there is no bit for 24"
    assert kernel.mark_offsets(cells(7), 1, 8, bits) == 0
    assert kernel.look_up(8, table.cells, table.capacity, 5, 8, bits, words) == 5
    assert list(words) == [0, 0, kernel.LATER, 0, 0, 0, 0, 0, 0, 0]
    slots = cells(0, 0, 0, kernel.LATER, 0, (1 << 63) - 1)
    flags, tallies, totals = bytearray(8), room(8 * C.TALLY_WIDTH), room(S.TOTAL_WIDTH)
    batches = Columns(C.BATCH_WIDTH, 8)
    reported: list[Any] = [batches.cells, 8, flags, tallies, totals]
    judged: list[Any] = [table.cells, table.capacity, 5, words, slots, 2, 1 << 40, 0, 1, *reported]
    K.judge_rows(*judged)
    assert list(flags[:5]) == [1, 0, 0, 1, 1]
    assert (totals[S.TOTAL_SUPERSEDED], totals[S.TOTAL_INVALID]) == (1, 1)


@pytest.mark.parametrize("kernel", TWINS)
@pytest.mark.parametrize("damaged", [(0, 5, 4, 0, 0), (0, -1, 1, 0, 0), (0, 0, 1, 7, 2), (0, 0, 0, -1, 1)])
def test_look_up_notices_a_field_outside_the_body(kernel: ModuleType, damaged: tuple[int, ...]) -> None:
    table = records((1, 0, 8, 0, 8), damaged)  # type: ignore[arg-type]
    assert kernel.look_up(8, table.cells, table.capacity, 2, 0, bytearray(1), room(4)) == 1


@pytest.mark.parametrize("kernel", TWINS)
def test_tables_smaller_than_declared_are_refused(kernel: ModuleType) -> None:
    rows, gone = room(9), room(3)
    table = records((0, 0, 0, 0, 0))
    calls: list[tuple[Any, ...]] = [
        (kernel.copy_rows, table.cells, 8, 1, room(1), 0, 9, 9, cells(0, -1), rows),
        (kernel.copy_rows, table.cells, 8, 1, room(2), 0, 9, 9, cells(3, -1), rows),
        (kernel.fold_rows, rows, 0, 4, room(12), 4, 3, room(3), room(9)),
        (kernel.fold_rows, rows, 0, 3, room(12), 4, 4, room(3), gone),
        (kernel.fold_rows, rows, 0, 3, room(12), 4, 3, cells(0, 1, 0), gone),
        (kernel.ask_rows, rows, 3, room(5), 2, room(3), gone),
        (kernel.ask_rows, rows, 3, room(12), 4, cells(0, 1, 0), gone),
        (kernel.scatter_rows, packed([(0, 0, 1)] * 3), 3, 2, room(3), room(6)),
        (kernel.scatter_rows, rows, 3, 2, room(2), room(9)),
        (kernel.scatter_offsets, gone, 3, room(2), 2, room(3), room(2)),
        (kernel.mark_offsets, gone, 4, 0, bytearray(1)),
        (kernel.look_up, 0, table.cells, 8, 1, 0, bytearray(1), room(1)),
    ]
    for call, *arguments in calls:
        with pytest.raises(ValueError):
            call(*arguments)
