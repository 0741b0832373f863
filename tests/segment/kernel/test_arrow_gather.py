"""The gather kernel, compiled and interpreted, builds the same columns and never reads outside of its buffers."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.kernel import arrow_gather as G
from kseg.segment.kernel import arrow_headers as H
from kseg.segment.kernel import state_fields as S
from tests.support.kernel_variants import COMPILED, both, buffers, numbers, outcome, read_rows, table_of
from tests.support.raw_batches import field, record, sealed, varint

Kernel = dict[str, ModuleType]
Wrap = Callable[[Any], Any]
MOST = 2**63 - 1
CAPACITY = 64
ROOM = 4096


def laid_out(kernel: Kernel, wrap: Wrap, data: bytes, bounds: array[int], room: int) -> Any:
    """The kernel's complete output for the records of the first batches in `data`."""
    gather = kernel["arrow_gather"]
    batches, count = table_of(data)
    cells = array("q", bytes(8 * 12 * CAPACITY))
    state = read_rows(kernel, wrap, data, batches, count, cells)
    count_of_rows = state[S.WALK_COUNT]
    wanted = outcome(lambda: gather.wanted_until(wrap(batches), 16, 0, count, wrap(bounds)))
    kept = outcome(lambda: gather.keep_rows(wrap(cells), CAPACITY, count_of_rows, wrap(bounds)))
    if not isinstance(kept, int):
        return wanted, kept
    left = numbers(room)
    rows = gather.RecordRows(wrap(batches), 16, wrap(cells), CAPACITY, 0, kept)
    fits = outcome(lambda: gather.rows_within(rows, True, True, wrap(left)))
    sums = numbers(0, 0, 0)
    reported = (wrap(data), rows, room, wrap(sums))
    measured = outcome(partial(kernel["arrow_headers"].measure_headers, *reported)), sums
    return wanted, kept, fits, left, measured, columns(kernel, wrap, data, rows)


def columns(kernel: Kernel, wrap: Wrap, data: bytes, rows: Any) -> list[Any]:
    gather = kernel["arrow_gather"]
    found: list[Any] = []
    for start in (C.R_KEY_START, C.R_VALUE_START):
        out, flags, ends = bytearray(ROOM), bytearray(9), array("i", [0] * 65)
        reported = (wrap(data), rows, start, wrap(out), 0, wrap(ends), wrap(flags), 0)
        filled = outcome(partial(gather.gather_bytes, *reported))
        found.append((filled, bytes(out), flags, ends))
    longs, ints, flags = array("q", [0] * 65), array("i", [0] * 65), bytearray(9)
    codes = bytearray(65)
    for call in (
        lambda: gather.gather_longs(rows, C.R_OFFSET, wrap(longs), 0),
        lambda: gather.gather_times(rows, wrap(longs), 0),
        lambda: gather.gather_ints(rows, C.R_SEQUENCE, wrap(ints), 0),
        lambda: gather.spread_longs(rows, C.POSITION, wrap(longs), 1),
        lambda: gather.spread_ints(rows, C.LEADER_EPOCH, wrap(ints), 1),
        lambda: gather.spread_time_types(rows, wrap(ints), 0),
        lambda: gather.spread_checksums(rows, wrap(longs), 0),
        lambda: gather.spread_codecs(rows, wrap(codes), 0),
        lambda: gather.spread_flags(rows, 16, wrap(flags), 3),
        lambda: gather.spread_validity(rows, wrap(flags), 2),
    ):
        found.append((outcome(call), longs.tolist(), ints.tolist(), bytes(flags), bytes(codes)))
    found.append(headers(kernel["arrow_headers"], wrap, data, rows))
    return found


def headers(kernel: ModuleType, wrap: Wrap, data: bytes, rows: Any) -> Any:
    sums = numbers(0, 0, 0)
    output = outcome(partial(kernel.measure_headers, wrap(data), rows, MOST, wrap(sums)))
    if not isinstance(output, int):
        return output
    count, name_bytes, value_bytes = sums
    names, values, flags = bytearray(name_bytes), bytearray(value_bytes), bytearray(count // 8 + 1)
    ends, name_ends, value_ends = (array("i", [0] * (size + 1)) for size in (output, count, count))
    output = outcome(
        lambda: kernel.gather_headers(
            wrap(data),
            rows,
            wrap(ends),
            wrap(names),
            wrap(name_ends),
            wrap(values),
            wrap(value_ends),
            wrap(flags),
        )
    )
    return output, names, values, flags, ends, name_ends, value_ends


@given(
    buffers(),
    st.integers(-2, 2000),
    st.integers(-2, 3000),
    st.sampled_from([-MOST - 1, 0, 1_700_000_000_000]),
    st.booleans(),
    st.integers(0, 300),
)
def test_compiled_and_interpreted_gather_agree(
    data: bytes, low: int, high: int, least_ms: int, control: bool, room: int
) -> None:
    bounds = numbers(low, high, least_ms, int(control), MOST)
    both(lambda kernel, wrap: laid_out(kernel, wrap, data, bounds, room))


@given(
    st.integers(-3, 20),
    st.integers(-3, 20),
    st.integers(-3, 20),
    st.integers(-3, 20),
    st.lists(st.integers(-MOST - 1, MOST), min_size=12 * 8, max_size=12 * 8),
)
def test_gather_rejects_or_answers_any_table_alike(
    capacity: int, first: int, stop: int, at: int, cells: list[int]
) -> None:
    """The compiled and the interpreted kernel reject or answer any table and any rows in the same way."""
    data = bytes(range(40))
    batches = numbers(*range(C.BATCH_WIDTH * 4))

    def asked(kernel: Kernel, wrap: Wrap) -> list[Any]:
        gather, table = kernel["arrow_gather"], wrap(array("q", cells))
        out, flags, ends, longs = bytearray(30), bytearray(3), array("i", [0] * 12), array("q", [0] * 12)

        def rows() -> Any:
            return gather.RecordRows(wrap(batches), 4, table, capacity, first, stop)

        calls: list[Callable[[], Any]] = [
            lambda: gather.gather_bytes(wrap(data), rows(), 3, wrap(out), at, wrap(ends), wrap(flags), at),
            lambda: gather.gather_longs(rows(), at, wrap(longs), at),
            lambda: gather.gather_times(rows(), wrap(longs), at),
            lambda: gather.spread_longs(rows(), at, wrap(longs), at),
            lambda: gather.spread_codecs(rows(), wrap(out), at),
            lambda: gather.spread_validity(rows(), wrap(flags), at),
            lambda: kernel["arrow_headers"].measure_headers(wrap(data), rows(), 30, wrap(longs)),
            lambda: gather.rows_within(rows(), True, True, wrap(longs)),
            lambda: gather.keep_rows(table, capacity, stop, wrap(longs)),
            lambda: gather.wanted_until(wrap(batches), capacity, first, stop, wrap(longs)),
        ]
        return [(outcome(call), bytes(out), longs.tolist()) for call in calls]

    both(asked)


def test_gathered_columns_have_the_arrow_layout() -> None:
    """The Arrow columnar format: offsets between rows, and a validity bit for each."""
    body = b"".join(
        [
            record(0, key=b"first", value=b""),
            record(
                1,
                key=None,
                value=b"second",
                headers=varint(2) + field(b"h") + field(None) + field(b"") + field(b"x"),
            ),
            record(2, key=b"", value=None),
        ]
    )
    data = sealed(body, 3, base_offset=50, producer=(7, 1, 10))
    batches, count = table_of(data)
    cells = array("q", bytes(8 * 12 * CAPACITY))
    state = read_rows(COMPILED or {}, memoryview, data, batches, count, cells) if COMPILED else None
    if state is None:
        pytest.skip("the kernels are not compiled")
    rows = G.RecordRows(memoryview(batches), 16, memoryview(cells), CAPACITY, 0, 3)
    out, flags, ends = bytearray(16), bytearray(1), array("i", [0] * 4)
    filled = G.gather_bytes(
        data, rows, C.R_KEY_START, memoryview(out), 0, memoryview(ends), memoryview(flags), 0
    )
    assert (bytes(out[:filled]), ends.tolist(), flags[0]) == (b"first", [0, 5, 5, 5], 0b101)
    sums = memoryview(array("q", [0, 0, 0]))
    for most, stop, need in ((MOST, 3, [2, 1, 1]), (2, 3, [2, 1, 1]), (1, 1, [0, 0, 0])):
        assert H.measure_headers(data, rows, most, sums) == stop
        assert sums.tolist() == need
    longs = memoryview(array("q", [0] * 3))
    G.gather_longs(rows, C.R_OFFSET, longs, 0)
    assert longs.tolist() == [50, 51, 52]
