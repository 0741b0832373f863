"""Tables of batches processed by the kernels equal the same batches processed one by one, in the producer map and in index entries."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.batches import batch_at
from kseg.segment.sidecar.index_builder import SegmentIndexes
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay_events import ReplayEvent
from tests.support.kernel_variants import both

EDGES = [-(2**63), -(2**31), -2, -1, 0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**63 - 1]
TRANSACTIONAL, CONTROL = 0x10, 0x20


def anything(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(low, high), st.sampled_from(EDGES))


@st.composite
def tables(draw: st.DrawFn) -> Columns:
    """Batches that mostly continue each other, with occasional errors in every header field."""
    count = draw(st.integers(0, 12))
    table = Columns(C.BATCH_WIDTH, max(1, count))
    table.count = count
    offset, position = draw(anything(0, 100)), 0
    sequences = {producer: draw(anything(0, 5)) for producer in range(3)}
    for row in range(count):
        producer = draw(st.integers(-1, 2))
        records = draw(st.integers(1, 4))
        size = draw(st.integers(61, 9000))
        wild = draw(st.integers(0, 9)) == 0
        values = {
            C.POSITION: position,
            C.SIZE: size,
            C.MAGIC: draw(st.sampled_from([2, 2, 2, 2, 1, 0])) if wild else 2,
            C.BASE_OFFSET: draw(anything(0, 100)) if wild else offset,
            C.LAST_OFFSET: draw(anything(0, 100)) if wild else offset + records - 1,
            C.COUNT: records,
            C.ATTRIBUTES: draw(st.sampled_from([0, 0, 0, TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL])),
            C.PRODUCER_ID: producer,
            C.PRODUCER_EPOCH: draw(st.integers(0, 1)) if wild else 0,
            C.BASE_SEQUENCE: draw(anything(0, 20)) if wild else sequences.get(producer, -1),
            C.MAX_TIMESTAMP: draw(anything(0, 50)),
            C.VALID: 1,
        }
        for field, value in values.items():
            table.cells[field * table.capacity + row] = max(-(2**63), min(2**63 - 1, value))
        if producer >= 0:
            sequences[producer] = (sequences[producer] + records) % 2**31
        offset += records
        position += size
    return table


def reported(state: ProducerState) -> tuple[Any, ...]:
    return (state.snapshot(), state.end_offset, state.open_transactions, state.first_unstable_offset)


@given(tables())
def test_table_of_batches_equals_its_batches_one_by_one(table: Columns) -> None:
    one_by_one, as_table = ProducerState(), ProducerState()
    events: list[ReplayEvent] = []
    for row in range(table.count):
        events += one_by_one.apply(batch_at(table, row))
    found: list[ReplayEvent] = []
    row = as_table.follow(table, 0, table.count)
    while row < table.count:
        found += as_table.apply(batch_at(table, row))
        row = as_table.follow(table, row + 1, table.count)
    assert (reported(as_table), found) == (reported(one_by_one), events)


def test_known_producers_are_handled_by_the_kernel_alone() -> None:
    table = Columns(C.BATCH_WIDTH, 6)
    table.count = 6
    for row in range(6):
        for field, value in {
            C.MAGIC: 2,
            C.BASE_OFFSET: 10 * row,
            C.LAST_OFFSET: 10 * row + 9,
            C.PRODUCER_ID: row % 2,
            C.BASE_SEQUENCE: 10 * (row // 2),
        }.items():
            table.cells[field * table.capacity + row] = value
    state = ProducerState()
    # no producer is known yet
    assert state.follow(table, 0, 6) == 0
    assert state.apply(batch_at(table, 0)) == state.apply(batch_at(table, 1)) == ()
    assert state.follow(table, 2, 6) == 6
    known = state.entry(1)
    assert known is not None
    assert (known.last_offset, known.last_sequence, known.offset_delta, state.end_offset) == (59, 29, 9, 60)


@given(tables(), st.sampled_from([0, 5, 2**31, -3]), st.sampled_from([0, 100, 4096]), st.integers(8, 60))
def test_index_entries_of_a_table_equal_those_of_its_batches_one_by_one(
    table: Columns, base: int, interval: int, most_bytes: int
) -> None:
    one_by_one, as_table = (SegmentIndexes(base, interval, most_bytes) for _ in range(2))
    refusals = []
    for row in range(table.count):
        batch = batch_at(table, row)
        refusal = one_by_one.add(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms)
        if refusal is not None:
            refusals.append((row, refusal))
    found = []
    met = as_table.add_rows(table, 0, table.count)
    while met is not None:
        found.append(met)
        met = as_table.add_rows(table, met[0] + 1, table.count)
    assert found == refusals
    assert as_table.finish() == one_by_one.finish()
    assert as_table.offset_index.to_bytes() == one_by_one.offset_index.to_bytes()
    assert as_table.time_index.to_bytes() == one_by_one.time_index.to_bytes()
    assert (as_table.max_timestamp_ms, as_table.offset_of_max) == (
        one_by_one.max_timestamp_ms,
        one_by_one.offset_of_max,
    )


def followed_rows(
    kernel: dict[str, ModuleType],
    wrap: Callable[[Any], Any],
    data: bytes,
    table: Columns,
    first: int,
    *,
    open_room: int,
    most: int = 3,
) -> Any:
    """The complete output of `follow` for the rows from `first` on, if producers 0 and 1 (7 and 8) are known. Rows that need a closer look
    are skipped."""
    slots, state = array("q", bytes(8 * 9 * 4)), array("q", [-7, 0, 0, 0])
    opened, markers = array("q", bytes(8 * 4 * open_room)), array("q", bytes(8 * 5 * most))
    stops, row = [], first
    while row < table.count:
        row = kernel["follow_producers"].follow(
            wrap(data),
            wrap(table.cells),
            table.capacity,
            row,
            table.count,
            {0: 1, 1: 3, 7: 0, 8: 2},
            wrap(slots),
            4,
            wrap(opened),
            open_room,
            wrap(markers),
            most,
            40,
            wrap(state),
        )
        stops.append((row, state.tolist(), markers.tolist()))
        row, state[3] = row + 1, 0
    return stops, slots.tolist(), opened.tolist()


@given(tables(), st.integers(0, 12), st.sampled_from([0, 5, 2**31]))
def test_compiled_and_interpreted_replay_agree(table: Columns, first: int, base: int) -> None:
    first = min(first, table.count)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        followed = followed_rows(kernel, wrap, b"", table, first, open_room=0)
        offsets, times = bytearray(8 * table.count), bytearray(12 * table.count)
        state = array("q", bytes(8 * 11))
        indexed = kernel["indexing"].index_rows(
            wrap(table.cells),
            table.capacity,
            first,
            table.count,
            base,
            100,
            5,
            4,
            wrap(offsets),
            wrap(times),
            wrap(state),
        )
        return followed, indexed, bytes(offsets), bytes(times), state.tolist()

    both(run)
