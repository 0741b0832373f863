"""The kernel of verify, compiled and interpreted, gives the same results, which are those that the rules require."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from tests.support.interpreted_kernels import variants

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
SMALL = st.integers(min_value=-3, max_value=40)


KERNELS = variants(verify_records)
PLAIN = KERNELS[0].values[0]


def table_of(rows: list[list[int]]) -> Columns:
    table = Columns(C.BATCH_WIDTH, max(1, len(rows)))
    table.count = len(rows)
    for row, values in enumerate(rows):
        for field, value in enumerate(values):
            table.cells[field * table.capacity + row] = value
    return table


def batch(position: int, base: int, last: int, **fields: int) -> list[int]:
    values = {
        C.POSITION: position,
        C.SIZE: 100,
        C.MAGIC: fields.get("magic", 2),
        C.BASE_OFFSET: base,
        C.LAST_OFFSET: last,
        C.COUNT: fields.get("count", last - base + 1),
        C.ATTRIBUTES: fields.get("attributes", 0),
        C.LEADER_EPOCH: fields.get("epoch", 0),
        C.MAX_TIMESTAMP: fields.get("timestamp", last),
        C.PRODUCER_ID: fields.get("producer", -1),
        C.PRODUCER_EPOCH: 0,
        C.BASE_SEQUENCE: fields.get("sequence", -1),
        C.VALID: 1,
    }
    return [values.get(field, 0) for field in range(C.BATCH_WIDTH)]


def state(*values: int, width: int) -> memoryview:
    return memoryview(array("q", [*values, *[0] * (width - len(values))]))


@pytest.mark.parametrize("kernel", KERNELS)
class TestRules:
    def test_next_suspect_finds_batches_inconsistent_with_neighbours(self, kernel: ModuleType) -> None:
        rows = [batch(0, 0, 4), batch(100, 5, 9), batch(200, 9, 12), batch(300, 13, 13, epoch=2)]
        table, seen = table_of(rows), state(-1, -1, width=S.SEEN_WIDTH)
        assert kernel.next_suspect(table.cells, 4, 0, 4, seen) == 2
        assert seen.tolist() == [12, 0, verify_records.OFFSET]
        assert kernel.next_suspect(table.cells, 4, 3, 4, seen) == 3
        assert seen.tolist() == [13, 2, verify_records.EPOCH]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"count": 6}, verify_records.COUNT),
            ({"count": -1}, verify_records.COUNT),
            ({"count": 0}, 0),
            ({"attributes": 128}, verify_records.ATTRIBUTES),
            ({"attributes": 5}, verify_records.ATTRIBUTES),
            ({"magic": 3}, verify_records.MAGIC),
            ({"magic": 1, "attributes": 4, "count": 1}, verify_records.ATTRIBUTES),
        ],
    )
    def test_next_suspect_finds_impossible_headers(
        self, fields: dict[str, int], reason: int, kernel: ModuleType
    ) -> None:
        table, seen = table_of([batch(0, 0, 4, **fields)]), state(-1, -1, width=S.SEEN_WIDTH)
        assert kernel.next_suspect(table.cells, 1, 0, 1, seen) == (0 if reason else 1)
        assert seen[S.SEEN_REASONS] == reason

    def test_batch_sums_equal_those_of_the_rows(self, kernel: ModuleType) -> None:
        rows = [
            batch(0, 3, 4),
            batch(100, 8, 9, count=1, timestamp=77),
            batch(200, 10, 10, magic=1, count=-1),
        ]
        table, sums = table_of(rows), state(width=S.SUM_WIDTH)
        kernel.tally(table.cells, 3, 0, 3, 50, sums)
        assert (sums[S.SUM_GAPS], sums[S.SUM_MISSING]) == (1, 3)
        assert (sums[S.SUM_GAP_POSITION], sums[S.SUM_GAP_OFFSET]) == (100, 5)
        assert (sums[S.SUM_RECORDS], sums[S.SUM_WRAPPERS]) == (3, 1)
        assert (
            sums[S.SUM_FUTURE],
            sums[S.SUM_FUTURE_OFFSET],
            sums[S.SUM_MAX_TIMESTAMP],
        ) == (1, 9, 77)
        assert sums[S.SUM_MAGICS] == 0b110

    @pytest.mark.parametrize(
        ("entries", "wrong"),
        [
            ([1, 2, 3, 4], []),
            ([2, 1, 3, 4], [0]),
            ([1, 9, 3, 4], [1]),
            ([5, 6, 1, 7], [2]),
            ([1, 2, 3, 3], [2]),
        ],
    )
    def test_first_index_entry_out_of_order_is_found(
        self, entries: list[int], wrong: list[int], kernel: ModuleType
    ) -> None:
        index = b"".join(value.to_bytes(4, "big") * 2 for value in entries)
        batches = Columns(C.BATCH_WIDTH, 10)
        for field in (C.POSITION, C.BASE_OFFSET, C.LAST_OFFSET):
            batches.cells[field * 10 : field * 10 + 10] = memoryview(array("q", range(10)))
        state = memoryview(array("q", bytes(8 * S.ENTRY_WIDTH)))
        state[S.ENTRY_FORMER_SLOT] = state[S.ENTRY_SEEN] = -1
        found = []
        while state[S.ENTRY_SLOT] < len(entries):
            output = kernel.next_offset_entry(index, len(entries), 0, batches.cells, 10, 10, state)
            if output == kernel.UNSORTED:
                found.append(state[S.ENTRY_SLOT] - 1)
        assert found == wrong


def _columns(draw: st.DrawFn, numbers: st.SearchStrategy[int]) -> list[list[int]]:
    rows = draw(st.lists(st.lists(numbers, min_size=C.BATCH_WIDTH, max_size=C.BATCH_WIDTH), max_size=6))
    for row in rows:
        row[C.MAGIC] = draw(st.integers(-128, 127))
        row[C.COUNT] = draw(st.integers(-3, 9))
        row[C.BASE_SEQUENCE] = draw(st.integers(-1, 50))
        row[C.ATTRIBUTES] = draw(st.integers(-(2**15), 2**15 - 1))
    return rows


@st.composite
def tables(draw: st.DrawFn) -> list[list[int]]:
    return _columns(draw, draw(st.sampled_from((INT64, SMALL))))


@given(rows=tables(), first=INT64, now=INT64, index=st.binary(max_size=96), base=st.integers(0, 2**62))
def test_compiled_and_interpreted_verify_records_agree(
    rows: list[list[int]], first: int, now: int, index: bytes, base: int
) -> None:
    table = table_of(rows)
    count, capacity = table.count, table.capacity

    def answers(kernel: ModuleType) -> list[object]:
        output: list[object] = []
        seen = state(first, -1, width=S.SEEN_WIDTH)
        row = 0
        while row < count:
            row = kernel.next_suspect(table.cells, capacity, row, count, seen) + 1
            output.append((row, seen.tolist()))
        sums = state(width=S.SUM_WIDTH)
        kernel.tally(table.cells, capacity, 0, count, now, sums)
        output.append(sums.tolist())
        for at in range(count):
            output.append(kernel.next_epoch(table.cells, capacity, at, count, 0))
        for walk, width in ((kernel.next_offset_entry, 8), (kernel.next_time_entry, 12)):
            place = state(0, 0, base - 1, width=S.ENTRY_WIDTH)
            place[S.ENTRY_FORMER_SLOT] = -1
            code = -1
            while code not in (verify_records.IN_ORDER, verify_records.MORE):
                code = walk(index, len(index) // width, base, table.cells, capacity, count, place)
                output.append((code, place.tolist()))
        return output

    assert answers(verify_records) == answers(PLAIN)
