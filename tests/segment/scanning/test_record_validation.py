"""The fast path of the deep level never accepts records in which the full check finds something."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.recovery.verify.records_check import RecordsCheck
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.kernel.validate import compressed_valid, plain_valid
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support import interpreted_kernels

BASE, TIME_MS = 5_000, 1_700_000_000_000
SLOW = interpreted_kernels.kernels()["validate"]
RECORDS = (
    Record(BASE, TIME_MS, b"key", b"value"),
    Record(BASE + 1, TIME_MS - 70_000, None, b""),
    Record(BASE + 2, TIME_MS + 9, b"", None, ((b"name", b"x" * 200), (b"", None))),
    Record(BASE + 200, TIME_MS + 1, b"k" * 100, b"v" * 300),
)
BATCHES = {
    "plain": NewBatch(records=RECORDS),
    "log append time": NewBatch(records=RECORDS, log_append_time=True, max_timestamp_ms=TIME_MS + 5),
    "one record": NewBatch(records=RECORDS[:1], producer_id=4, producer_epoch=0, base_sequence=2147483647),
    "delete horizon": NewBatch(records=RECORDS, delete_horizon_ms=TIME_MS + 86_400_000),
    "abort": end_transaction_batch(EndTransactionMarker(True, 3, TIME_MS), BASE, 7, 2, 1),
    "commit": end_transaction_batch(EndTransactionMarker(False, 2**31 - 1, TIME_MS), BASE + 1, 7, 2, 1),
}


def table_of(data: bytes) -> Columns:
    """The batch headers in the bytes, as if they were valid."""
    table = Columns(C.BATCH_WIDTH, 64)
    state = memoryview(array("q", [0, 0]))
    walk(data, len(data), table.cells, table.capacity, state)
    table.count = state[1]
    return table


def test_valid_batches_pass_the_fast_check() -> None:
    data = b"".join(encode_batch(new) for new in BATCHES.values())
    table = table_of(data)
    assert plain_valid(data, 0, table.count, table.cells, table.capacity) == table.count == len(BATCHES)
    assert not list(RecordsCheck("f", memoryview(data)).take(table, 0, table.count))


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("value", [0, 1, 2, 0x7F, 0x80, 0xFF])
def test_fast_check_misses_no_changed_byte(name: str, value: int) -> None:
    good = encode_batch(BATCHES[name])
    for at in range(L.BATCH_HEADER - 40, len(good)):
        data = bytearray(good)
        data[at] = value
        _agree(bytes(data))


@given(st.data())
def test_fast_check_misses_no_changed_bytes(draw: st.DataObject) -> None:
    data = bytearray(
        b"".join(encode_batch(new) for new in draw.draw(st.permutations(list(BATCHES.values()))))
    )
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(21, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    _agree(bytes(data))


def _agree(data: bytes) -> None:
    table = table_of(data)
    for row in range(table.count):
        careful = list(RecordsCheck("f", memoryview(data))._check_rows(table, row, row + 1))
        quick = plain_valid(data, row, row + 1, table.cells, table.capacity) > row
        assert not (quick and careful), careful
        assert quick == (SLOW.plain_valid(data, row, row + 1, table.cells, table.capacity) > row)
        if table.at(C.SIZE, row) >= L.BATCH_HEADER and table.at(C.MAGIC, row) == L.MAGIC_V2:
            start = table.at(C.POSITION, row)
            body = data[start + L.BATCH_HEADER : start + table.at(C.SIZE, row)]
            control = bool(table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT)
            packed = bool(table.at(C.ATTRIBUTES, row) & L.CODEC_MASK)
            if not packed:
                # a marker is checked in place
                bounds = array("q", (0, len(body)))
                valid = compressed_valid(body, bounds, row, row + 1, table.cells, table.capacity)
                assert (valid > row) == quick or control
    check = RecordsCheck("f", memoryview(data))
    both = RecordsCheck("f", memoryview(data))
    expected = [finding for row in range(table.count) for finding in check._check_rows(table, row, row + 1)]
    assert list(both.take(table, 0, table.count)) == expected
    assert both.records == check.records


@pytest.mark.parametrize("codec", [L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD])
def test_fast_check_of_compressed_batches_equals_the_full_one(codec: int) -> None:
    good = encode_batch(NewBatch(records=RECORDS, codec=codec))
    for at in range(L.BATCH_HEADER, len(good)):
        data = bytearray(good)
        data[at] ^= 0x55
        table = table_of(bytes(data))
        careful = list(RecordsCheck("f", memoryview(data))._check_rows(table, 0, 1))
        assert list(RecordsCheck("f", memoryview(data)).take(table, 0, 1)) == careful
    assert not list(RecordsCheck("f", memoryview(good)).take(table_of(good), 0, 1))
